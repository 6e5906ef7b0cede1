"""Register allocation: evictions and priorities of each function, tried in copies of the compiler."""
