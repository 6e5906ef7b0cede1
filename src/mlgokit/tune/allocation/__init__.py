"""Tuning of register allocation: what evictions and priorities of each function are worth, and their proof."""
