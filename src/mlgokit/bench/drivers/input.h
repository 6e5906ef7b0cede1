// What the drivers share: a file as one string, and a digest of what they made.
#ifndef MLGOKIT_BENCH_INPUT_H
#define MLGOKIT_BENCH_INPUT_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static inline char *readInput(const char *Path, size_t *Size) {
  FILE *File = fopen(Path, "rb");
  if (!File || fseek(File, 0, SEEK_END)) {
    fprintf(stderr, "error: %s cannot be read\n", Path);
    exit(2);
  }
  *Size = (size_t)ftell(File);
  rewind(File);
  char *Text = (char *)malloc(*Size + 1);
  if (!Text || fread(Text, 1, *Size, File) != *Size)
    exit(2);
  Text[*Size] = 0;
  fclose(File);
  return Text;
}

static inline uint64_t digest(uint64_t State, const void *Bytes, size_t Size) {
  const unsigned char *Begin = (const unsigned char *)Bytes;
  // Eight bytes a step: the driver must not outweigh the library.
  size_t Index = 0;
  for (; Index + 8 <= Size; Index += 8) {
    uint64_t Word = 0;
    for (int Byte = 0; Byte < 8; ++Byte)
      Word |= (uint64_t)Begin[Index + Byte] << (8 * Byte);
    State = (State ^ Word) * 0x9E3779B97F4A7C15u;
  }
  for (; Index < Size; ++Index)
    State = (State ^ Begin[Index]) * 0x100000001B3u;
  return State;
}

static inline void report(const char *What, uint64_t Digest) {
  printf("%s %016llx\n", What, (unsigned long long)Digest);
}

#endif
