"""Tuning: the smallest build of one project that a search finds, unit by unit, and its verification."""
