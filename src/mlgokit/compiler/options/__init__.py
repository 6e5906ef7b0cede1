"""What the words of a clang command line mean, which of them are let through, and the one way to start `clang -cc1`."""
