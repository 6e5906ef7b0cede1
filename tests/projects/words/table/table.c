#include "table.h"

#include <stdlib.h>
#include <string.h>

static unsigned next(const struct table *table, unsigned place) {
  return place + 1 == table->size ? 0 : place + 1;
}

int table_init(struct table *table, unsigned least) {
  const unsigned *size = table_sizes;
  while (size[1] && *size < least)
    ++size;
  table->entries = calloc(*size, sizeof(struct entry));
  table->size = *size;
  table->used = 0;
  return table->entries != NULL;
}

struct entry *table_find(struct table *table, const char *word) {
  unsigned place = hash_word(word) % table->size;
  while (table->entries[place].count && strncmp(table->entries[place].word, word, sizeof table->entries->word - 1))
    place = next(table, place);
  if (!table->entries[place].count && table->used + 1 < table->size) {
    strncpy(table->entries[place].word, word, sizeof table->entries->word - 1);
    ++table->used;
  }
  return &table->entries[place];
}

void table_free(struct table *table) {
  free(table->entries);
}
