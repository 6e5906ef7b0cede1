"""Tuning: the smallest build of one project that a search finds, module by module, and its proof."""
