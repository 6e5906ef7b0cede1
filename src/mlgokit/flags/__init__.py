"""Which flags of the compiler and the linker make a build smaller: a reviewed list, tried on the build itself."""
