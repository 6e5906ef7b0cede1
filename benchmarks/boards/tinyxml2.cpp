#include "tinyxml2.h"
#include <stdio.h>
#include <stdlib.h>

void *operator new(size_t size) { return malloc(size); }
void *operator new[](size_t size) { return malloc(size); }
void operator delete(void *memory) noexcept { free(memory); }
void operator delete[](void *memory) noexcept { free(memory); }
void operator delete(void *memory, unsigned) noexcept { free(memory); }
extern "C" void __cxa_pure_virtual() { abort(); }
extern "C" void *__dso_handle = nullptr;
extern "C" int __aeabi_atexit(void *, void (*)(void *), void *) { return 0; }

int main() {
  tinyxml2::XMLDocument document;
  document.Parse("<?xml version='1.0'?><list a='1'><item id='1'>one &amp; only</item><item id='2'><!-- x --><b/></item>"
                 "<![CDATA[<raw>]]></list>");
  printf("%s\n", document.ErrorName());
  for (auto *node = document.RootElement()->FirstChildElement("item"); node; node = node->NextSiblingElement("item"))
    node->SetAttribute("size", 10 * node->IntAttribute("id"));
  document.RootElement()->InsertNewChildElement("new")->SetText(1.5);
  tinyxml2::XMLPrinter printer;
  document.Print(&printer);
  puts(printer.CStr());
  document.Parse("<a><b></a>");
  puts(document.ErrorStr());
  return 0;
}
