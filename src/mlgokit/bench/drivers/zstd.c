// Compresses a text at three levels, and gets it back.
#include "zstd.h"
#include "input.h"
#include <string.h>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  size_t Bound = ZSTD_compressBound(Size);
  char *Packed = malloc(Bound), *Back = malloc(Size);
  static const int Levels[] = {1, 3, 9};
  for (int Index = 0; Index < 3; ++Index) {
    size_t Bytes = ZSTD_compress(Packed, Bound, Text, Size, Levels[Index]);
    if (ZSTD_isError(Bytes) || ZSTD_decompress(Back, Size, Packed, Bytes) != Size || memcmp(Back, Text, Size))
      return 1;
    report("zstd", digest(Bytes, Packed, Bytes));
  }
  return 0;
}
