"""Inlining decisions: many independent flips in one compilation, kept by component."""
