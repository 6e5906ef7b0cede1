"""``python -m mlgokit``."""

from mlgokit.cli import main

main()
