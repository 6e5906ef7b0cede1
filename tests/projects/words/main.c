#include "table.h"

#include <stdio.h>

int main(void) {
  struct table table;
  char word[32];
  if (!table_init(&table, 1000))
    return 1;
  while (scanf("%31s", word) == 1)
    ++table_find(&table, word)->count;
  printf("%s: %u\n", TITLE, table.used);
  table_free(&table);
  return 0;
}
