#include "tinyxml2.h"
#include <stdio.h>

int main() {
  tinyxml2::XMLDocument document;
  int error = document.Parse("<shop open='yes'><item price='12'>tea &amp; milk</item><item price='7'/></shop>");
  printf("%d\n", error);
  int sum = 0;
  for (auto *item = document.FirstChildElement("shop")->FirstChildElement("item"); item;
       item = item->NextSiblingElement())
    sum += item->IntAttribute("price");
  document.FirstChildElement("shop")->SetAttribute("sum", sum);
  tinyxml2::XMLPrinter printer;
  document.Print(&printer);
  puts(printer.CStr());
  return sum != 19;
}
