"""Tables of tuned decisions that a plugin holds: for call sites, register allocation and passes; and their files."""
