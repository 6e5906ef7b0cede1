// Reads a document, copies it, compares both, and writes it in two ways.
#include "jansson.h"
#include "input.h"
#include <string.h>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  // Otherwise hashes are seeded from the time.
  json_object_seed(42);
  json_error_t Error;
  json_t *Root = json_loadb(Text, Size, 0, &Error);
  if (!Root) {
    fprintf(stderr, "error: %s\n", Error.text);
    return 1;
  }
  json_t *Copy = json_deep_copy(Root);
  printf("equal: %d\n", json_equal(Root, Copy));
  char *Sorted = json_dumps(Root, JSON_SORT_KEYS | JSON_COMPACT);
  report("sorted", digest(1, Sorted, strlen(Sorted)));
  char *Shown = json_dumps(Copy, JSON_INDENT(2) | JSON_ENSURE_ASCII);
  report("shown", digest(1, Shown, strlen(Shown)));
  free(Sorted);
  free(Shown);
  json_decref(Copy);
  json_decref(Root);
  free(Text);
  return 0;
}
