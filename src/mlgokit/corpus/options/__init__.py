"""Options of clang in corpora: parsing, review, edits, and the command line of a module."""
