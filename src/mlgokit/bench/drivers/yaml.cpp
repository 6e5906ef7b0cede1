// Parses a document, walks it, and writes it again.
#include "yaml-cpp/yaml.h"
#include "input.h"
#include <string>

static long walk(const YAML::Node &Node, int Depth) {
  if (Node.IsScalar())
    return (long)Node.Scalar().size() + Depth;
  long Sum = 0;
  if (Node.IsSequence())
    for (const auto &Part : Node)
      Sum += walk(Part, Depth + 1);
  if (Node.IsMap())
    for (const auto &Part : Node)
      Sum += walk(Part.first, Depth + 1) + walk(Part.second, Depth + 1);
  return Sum;
}

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  YAML::Node Root = YAML::Load(std::string(Text, Size));
  printf("%ld\n", walk(Root, 0));
  YAML::Emitter Out;
  Out << Root;
  report("yaml", digest(Out.size(), Out.c_str(), Out.size()));
}
