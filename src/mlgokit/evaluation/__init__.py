"""Evaluation: two builds of projects compared, the verdict whether to ship, and reports."""
