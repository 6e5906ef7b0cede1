// Looks for patterns in the lines of a text, by every way that the library has of matching, and replaces some.
#include "re2/re2.h"
#include "input.h"
#include <string>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  for (const char *Pattern : {"([a-z]+)ing\\b", "(?i)\\b(t\\w*|an?) (\\w+)", "[aeiou]{2,}[^aeiou ]+e",
                              "(\\w+) (\\w+) (\\w+)\\.", "^.*?(q|z)(\\w)", "\\b(?:be|con|de)\\w*(?:tion|ter)\\b"}) {
    RE2 Expression(Pattern);
    long Found = 0;
    uint64_t State = 1;
    re2::StringPiece Rest(Text, Size);
    while (!Rest.empty()) {
      size_t End = Rest.find('\n');
      re2::StringPiece Line = Rest.substr(0, End == re2::StringPiece::npos ? Rest.size() : End);
      Rest.remove_prefix(Line.size() + (End != re2::StringPiece::npos));
      re2::StringPiece First;
      while (RE2::FindAndConsume(&Line, Expression, &First)) {
        ++Found;
        State = digest(State, First.data(), First.size());
      }
    }
    printf("%s: %ld\n", Pattern, Found);
    report("first", State);
  }
  std::string All(Text, Size / 4);
  printf("%d\n", RE2::GlobalReplace(&All, "(\\w)(\\w+)", "\\2\\1"));
  report("replaced", digest(All.size(), All.data(), All.size()));
}
