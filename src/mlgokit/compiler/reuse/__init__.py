"""Work that is shared between compilations: resident compilers, cached functions, trials in forked copies."""
