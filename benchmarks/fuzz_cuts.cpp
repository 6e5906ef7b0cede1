// Cuts command lines of `clang -cc1` with clang's own table. Built and fed by fuzz_cuts.py: a line of standard input
// has the words after -cc1, each ended by a NUL. Answers with the index at which each option or input begins; `?`
// before the index of what clang does not know, `!` if the last option lacks its value.
#include "llvm/Config/llvm-config.h"
#include "llvm/Option/Arg.h"
#include "llvm/Option/ArgList.h"
#include "llvm/Option/OptTable.h"
#include "llvm/Option/Option.h"

#include <iostream>
#include <string>
#include <vector>

// As in scripts/option_table.cpp: the header is in a package that few have.
#if LLVM_VERSION_MAJOR >= 22
namespace clang {
const llvm::opt::OptTable &getDriverOptTable();
}
using clang::getDriverOptTable;
#else
namespace clang::driver {
const llvm::opt::OptTable &getDriverOptTable();
}
using clang::driver::getDriverOptTable;
#endif

using namespace llvm::opt;

int main() {
  constexpr unsigned CC1 = 1 << 2;
  const OptTable &Table = getDriverOptTable();
  for (std::string Line; std::getline(std::cin, Line);) {
    std::vector<const char *> Words;
    for (size_t At = 0; At < Line.size(); At += Line.find('\0', At) - At + 1)
      Words.push_back(Line.data() + At);
    unsigned MissingIndex = 0, MissingCount = 0;
    InputArgList Parsed = Table.ParseArgs(Words, MissingIndex, MissingCount, Visibility(CC1));
    for (const Arg *Found : Parsed) {
      bool Unknown = Found->getOption().getKind() == Option::UnknownClass;
      std::cout << (Unknown ? "?" : "") << Found->getIndex() << ' ';
    }
    std::cout << (MissingCount ? "!" : "") << '\n';
  }
}
