"""The commands: a file for each, with its configuration, ``run``, and maybe a ``page`` of its result, or ``render``.

A configuration is a frozen dataclass. Its docstrings are the help of the command line (:mod:`mlgokit.cli`).
"""
