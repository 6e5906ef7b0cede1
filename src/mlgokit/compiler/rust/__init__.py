"""Rust's compiler: its version and LLVM, the calls that cargo makes, and full link-time optimization of a program."""
