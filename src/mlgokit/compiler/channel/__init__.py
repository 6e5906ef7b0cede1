"""LLVM's interactive channels: their protocol, and the process that talks to the compiler."""
