"""Searches function by function: what trials in copies of the compiler share, whatever they decide."""
