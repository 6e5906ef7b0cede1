// Compresses a text, and gets it back, a few times.
#include "snappy.h"
#include "input.h"
#include <string>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  for (int Round = 0; Round < 8; ++Round) {
    std::string Packed, Back;
    // Another beginning each time, so that no round is like the one before.
    snappy::Compress(Text + Round, Size - Round, &Packed);
    if (!snappy::Uncompress(Packed.data(), Packed.size(), &Back) || Back != std::string(Text + Round, Size - Round))
      return 1;
    report("snappy", digest(Packed.size(), Packed.data(), Packed.size()));
  }
}
