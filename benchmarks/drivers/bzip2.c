// Packs a text.
#include "bzlib.h"
#include "input.h"

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  unsigned Packed = (unsigned)(Size + Size / 50 + 1000);
  char *Into = malloc(Packed);
  if (BZ2_bzBuffToBuffCompress(Into, &Packed, Text, (unsigned)Size, 9, 0, 0))
    return 1;
  report("packed", digest(Packed, Into, Packed));
  free(Into);
  free(Text);
  return 0;
}
