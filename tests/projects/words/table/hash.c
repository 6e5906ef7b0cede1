#include "table.h"

static unsigned mix(unsigned hash, unsigned char letter) {
  return (hash ^ letter) * 16777619u;
}

unsigned hash_word(const char *word) {
  unsigned hash = 2166136261u;
  while (*word)
    hash = mix(hash, (unsigned char)*word++);
  return hash;
}
