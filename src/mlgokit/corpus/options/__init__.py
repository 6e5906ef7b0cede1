"""clang's options: parsed, reviewed, edited, and put together for a module."""
