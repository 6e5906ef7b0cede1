"""LLVM's interactive channels: what is said on them, and their host."""
