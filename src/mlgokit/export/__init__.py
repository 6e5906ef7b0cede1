"""What leaves the project: policies linked into plugins, and models for builds of LLVM."""
