"""Where the bytes of a program, a library or an object are."""
