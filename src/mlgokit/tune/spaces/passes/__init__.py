"""Passes of the code generator that do not run on some functions, tried in copies of the compiler."""
