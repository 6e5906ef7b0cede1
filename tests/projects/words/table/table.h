#ifndef TABLE_H
#define TABLE_H

struct entry {
  char word[32];
  unsigned count;
};

struct table {
  struct entry *entries;
  unsigned size, used;
};

extern const unsigned table_sizes[];

unsigned hash_word(const char *word);
int table_init(struct table *table, unsigned least);
struct entry *table_find(struct table *table, const char *word);
void table_free(struct table *table);

#endif
