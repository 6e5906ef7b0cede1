"""Everything that starts compilers and linkers, and everything that reads what they write."""
