# Prints a table of primes as a C source.
echo '#include "table.h"'
echo 'const unsigned table_sizes[] = {53, 97, 193, 389, 769, 1543, 3079, 6151, 0};'
