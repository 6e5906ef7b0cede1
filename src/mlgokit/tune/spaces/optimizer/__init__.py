"""Passes of the optimizer that do not run on some functions, tried by component in whole compilations."""
