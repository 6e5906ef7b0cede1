#include "src/pugixml.hpp"
#include <stdio.h>
#include <string.h>

struct Output : pugi::xml_writer {
  void write(const void *data, size_t size) override { fwrite(data, 1, size, stdout); }
};

int main() {
  const char *text =
      "<shop open='yes'><item price='12'>tea &amp; milk</item><item price='7'><![CDATA[<raw>]]></item></shop>";
  pugi::xml_document document;
  Output output;
  pugi::xml_parse_result found = document.load_buffer(text, strlen(text));
  printf("%s %d\n", found.description(), int(found.offset));
  int sum = 0;
  for (pugi::xml_node node : document.child("shop").children("item")) {
    sum += node.attribute("price").as_int();
    node.append_attribute("sum") = sum;
  }
  document.save(output, "  ");
  for (pugi::xpath_node one : document.select_nodes("//item[@price < 10 or contains(text(), 'milk')]"))
    printf("%s %s\n", one.node().name(), one.node().attribute("sum").value());
  return sum != 19;
}
