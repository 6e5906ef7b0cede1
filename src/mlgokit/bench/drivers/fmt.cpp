// Formats numbers and strings by formats that are only known when it runs.
#include "fmt/format.h"
#include "input.h"
#include <string>

int main() {
  uint64_t State = 1;
  fmt::memory_buffer Out;
  for (int Index = 0; Index < 15000; ++Index) {
    Out.clear();
    double Value = Index * 0.37 - 1e-5 * Index * Index;
    std::string Name = std::string("name") + char('a' + Index % 26);
    fmt::vformat_to(fmt::appender(Out), "{:>8}|{:<#10x}|{:^+9}|{:08b}|{:o}\n",
                    fmt::make_format_args(Index, Index, Index, Index % 256, Index));
    fmt::vformat_to(fmt::appender(Out), "{0:.{2}f} {0:e} {0:g} {1:*^12} {1}\n",
                    fmt::make_format_args(Value, Name, Index % 8));
    fmt::vformat_to(fmt::appender(Out), "{} {:c} {:s} {:p}\n",
                    fmt::make_format_args(Value * 1e200, 'a' + Index % 26, Index % 2 == 0, (void *)4096));
    State = digest(State, Out.data(), Out.size());
  }
  report("formatted", State);
}
