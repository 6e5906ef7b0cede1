// Looks for patterns in a text.
#include "oniguruma.h"
#include "input.h"
#include <string.h>

int main(int Count, char **Words) {
  static const char *const Patterns[] = {
      "([a-z]+)ing\\b", "(?i)\\b(t\\w*|an?) (\\w+)", "[aeiou]{2,}[^aeiou ]+e", "(\\w+) (\\w+) (\\w+)\\.",
      "(\\w)\\w*\\1", "\\b(?=\\w*tion)(?<name>\\w{4,})\\b",
  };
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  const OnigUChar *Begin = (const OnigUChar *)Text, *End = Begin + Size;
  OnigEncoding Encoding = ONIG_ENCODING_UTF8;
  onig_initialize(&Encoding, 1);
  for (size_t Number = 0; Number < sizeof(Patterns) / sizeof(*Patterns); ++Number) {
    const OnigUChar *Pattern = (const OnigUChar *)Patterns[Number];
    regex_t *Expression;
    OnigErrorInfo Error;
    if (onig_new(&Expression, Pattern, Pattern + strlen(Patterns[Number]), ONIG_OPTION_DEFAULT, Encoding,
                 ONIG_SYNTAX_DEFAULT, &Error) != ONIG_NORMAL)
      return 1;
    OnigRegion *Region = onig_region_new();
    long Found = 0;
    uint64_t State = 1;
    for (const OnigUChar *From = Begin; From < End; ++Found) {
      if (onig_search(Expression, Begin, End, From, End, Region, ONIG_OPTION_NONE) < 0)
        break;
      State = digest(State, Text + Region->beg[0], (size_t)(Region->end[0] - Region->beg[0]));
      From = Begin + Region->end[0] + (Region->end[0] == Region->beg[0]);
    }
    printf("%s: %ld\n", Patterns[Number], Found);
    report("found", State);
    onig_region_free(Region, 1);
    onig_free(Expression);
  }
  onig_end();
  free(Text);
  return 0;
}
