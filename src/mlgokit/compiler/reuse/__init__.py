"""What compilations share: resident compilers, known functions, trials in forked copies."""
