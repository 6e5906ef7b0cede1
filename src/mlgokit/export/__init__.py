"""Exports: policies as plugins, as models for builds of LLVM, and tuned decisions as replay files."""
