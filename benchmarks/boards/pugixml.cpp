#include "src/pugixml.hpp"
#include <stdio.h>
#include <stdlib.h>

void operator delete(void *memory) noexcept { free(memory); }
void operator delete(void *memory, unsigned) noexcept { free(memory); }
extern "C" void __cxa_pure_virtual() { abort(); }
extern "C" void *__dso_handle = nullptr;
extern "C" int __aeabi_atexit(void *, void (*)(void *), void *) { return 0; }

struct Output : pugi::xml_writer {
  void write(const void *data, size_t size) override { fwrite(data, 1, size, stdout); }
};

int main() {
  pugi::xml_document document;
  Output output;
  auto found =
      document.load_string("<list a='1'><item id='1'>one &amp; only</item><item id='2'><!-- x --><b/></item></list>");
  printf("%s\n", found.description());
  for (auto node : document.child("list").children("item"))
    node.append_attribute("size") = int(node.attribute("id").as_int() * 10);
  document.save(output);
  auto set = document.select_nodes("//item[@size > 10]/@id");
  for (auto one : set)
    printf("%s=%s\n", one.attribute().name(), one.attribute().value());
  return set.size() != 1;
}
