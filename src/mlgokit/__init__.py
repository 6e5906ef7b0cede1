"""Trains optimization policies against the clang that is installed, and loads them back into it.

Importing the package imports none of its parts: name the module, as in ``from mlgokit.traces import read_log``.
"""
