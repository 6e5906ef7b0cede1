"""The commands: a file for each, with its configuration, ``run`` and, where its result has a table, ``render``.

A configuration is a frozen dataclass. Its docstrings are the help of the command line (:mod:`mlgokit.cli`).
"""
