"""Options of clang: parsing, the check that decides which are allowed, and command lines of ``clang -cc1``."""
