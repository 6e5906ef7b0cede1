"""rustc as a compiler: what it can do, what cargo asks of it, and a program's full link-time optimization by it."""
