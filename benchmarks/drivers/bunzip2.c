// Packs the beginning of a text, and unpacks it forty times.
#include "bzlib.h"
#include "input.h"
#include <string.h>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  Size /= 20;
  unsigned Packed = (unsigned)(Size + Size / 50 + 1000), Unpacked = (unsigned)Size;
  char *Into = malloc(Packed), *Again = malloc(Size);
  if (BZ2_bzBuffToBuffCompress(Into, &Packed, Text, (unsigned)Size, 9, 0, 0))
    return 1;
  for (int Turn = 0; Turn < 40; ++Turn) {
    Unpacked = (unsigned)Size;
    if (BZ2_bzBuffToBuffDecompress(Again, &Unpacked, Into, Packed, 0, 0))
      return 1;
  }
  printf("the same: %d\n", Unpacked == Size && !memcmp(Text, Again, Size));
  free(Into);
  free(Again);
  free(Text);
  return 0;
}
