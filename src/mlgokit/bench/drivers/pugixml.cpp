// Parses a document, asks it questions in XPath, changes it and writes it.
#include "pugixml.hpp"
#include "input.h"
#include <sstream>
#include <string>

int main(int Count, char **Words) {
  if (Count != 2)
    return 2;
  size_t Size;
  char *Text = readInput(Words[1], &Size);
  pugi::xml_document Document;
  if (!Document.load_buffer(Text, Size))
    return 1;
  for (const char *Query :
       {"//item[@kind='a']", "//item[name]/price", "//item[position() mod 7 = 3]/@id", "//group/item[last()]"}) {
    pugi::xpath_node_set Found = Document.select_nodes(Query);
    printf("%s: %d\n", Query, (int)Found.size());
  }
  printf("%.3f\n", pugi::xpath_query("sum(//price)").evaluate_number(Document));
  for (pugi::xpath_node Node : Document.select_nodes("//item[@kind='b']"))
    Node.node().append_child("note").text().set(Node.node().child_value("name"));
  std::ostringstream Out;
  Document.save(Out, "\t");
  std::string Written = Out.str();
  report("xml", digest(Written.size(), Written.data(), Written.size()));
}
