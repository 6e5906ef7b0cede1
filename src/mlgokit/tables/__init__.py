"""The tables that a plugin holds: their file, decisions of call sites, allocations and passes of functions."""
