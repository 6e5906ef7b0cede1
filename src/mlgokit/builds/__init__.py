"""A user's project: what it is made of, how a variant of it is made, linked and measured."""
