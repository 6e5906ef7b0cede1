"""What leaves the project: policies linked into plugins."""
