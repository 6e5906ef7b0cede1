// Packs a text at two levels, and unpacks it.
#include "lzma.h"
#include "input.h"
#include <string.h>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  size_t Most = lzma_stream_buffer_bound(Size);
  uint8_t *Packed = malloc(Most), *Again = malloc(Size);
  for (uint32_t Preset = 1; Preset < 7; Preset += 4) {
    size_t End = 0, Read = 0, Written = 0;
    uint64_t Memory = UINT64_MAX;
    if (lzma_easy_buffer_encode(Preset, LZMA_CHECK_CRC64, NULL, (const uint8_t *)Text, Size, Packed, &End, Most))
      return 1;
    report("packed", digest(End, Packed, End));
    if (lzma_stream_buffer_decode(&Memory, 0, NULL, Packed, &Read, End, Again, &Written, Size))
      return 1;
    printf("the same: %d\n", Written == Size && !memcmp(Text, Again, Size));
  }
  free(Packed);
  free(Again);
  free(Text);
  return 0;
}
