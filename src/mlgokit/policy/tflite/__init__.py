"""Policies as TFLite models, in both directions: graphs, their file, their values, and what a policy is in them."""
