// Parses a document, adds up its numbers, and writes it in two styles.
#include "input.h"
#include "json/json.h"
#include <memory>
#include <string>

static double total(const Json::Value &Value) {
  if (Value.isNumeric())
    return Value.asDouble();
  double Sum = 0;
  if (Value.isObject() || Value.isArray())
    for (const Json::Value &Part : Value)
      Sum += total(Part);
  return Sum;
}

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  Json::CharReaderBuilder Readers;
  std::unique_ptr<Json::CharReader> Reader(Readers.newCharReader());
  Json::Value Root;
  std::string Errors;
  if (!Reader->parse(Text, Text + Size, &Root, &Errors)) {
    fprintf(stderr, "error: %s\n", Errors.c_str());
    return 1;
  }
  printf("%.6f\n", total(Root));
  for (const char *Indentation : {"", "  "}) {
    Json::StreamWriterBuilder Writer;
    Writer["indentation"] = Indentation;
    std::string Written = Json::writeString(Writer, Root);
    report("json", digest(Written.size(), Written.data(), Written.size()));
  }
}
