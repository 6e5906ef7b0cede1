// Parses a document in pieces, and counts what is in it.
#include "expat.h"
#include "input.h"
#include <string.h>

static uint64_t State = 1;
static long Elements, Attributes, Bytes;

static void begin(void *Data, const XML_Char *Name, const XML_Char **Given) {
  (void)Data;
  ++Elements;
  State = digest(State, Name, strlen(Name));
  for (; *Given; Given += 2, ++Attributes)
    State = digest(State, Given[1], strlen(Given[1]));
}

static void end(void *Data, const XML_Char *Name) {
  (void)Data;
  (void)Name;
  State = State * 3 + 1;
}

static void text(void *Data, const XML_Char *Text, int Size) {
  (void)Data;
  Bytes += Size;
  State = digest(State, Text, (size_t)Size);
}

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  for (size_t Step = 4096; Step < 40000; Step += 9000) {
    XML_Parser Parser = XML_ParserCreate(NULL);
    // With a salt of the system's two runs would differ.
    XML_SetHashSalt(Parser, 12345);
    XML_SetElementHandler(Parser, begin, end);
    XML_SetCharacterDataHandler(Parser, text);
    for (size_t At = 0; At < Size; At += Step) {
      int Last = At + Step >= Size;
      if (XML_Parse(Parser, Text + At, (int)(Last ? Size - At : Step), Last) != XML_STATUS_OK) {
        fprintf(stderr, "error: %s\n", XML_ErrorString(XML_GetErrorCode(Parser)));
        return 1;
      }
    }
    XML_ParserFree(Parser);
  }
  printf("%ld elements, %ld attributes, %ld bytes\n", Elements, Attributes, Bytes);
  report("xml", State);
  return 0;
}
