"""Exports policies as plugins and as models for builds of LLVM, and tuned decisions as replay files."""
