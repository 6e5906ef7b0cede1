"""The commands that make corpora and look at them."""
