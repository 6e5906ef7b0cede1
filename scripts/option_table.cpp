// Prints the options of `clang -cc1` that a libclang-cpp knows: kind, words that begin it, and what it is an alias of.
// Built and read by option_table.py.
#include "llvm/Config/llvm-config.h"
#include "llvm/Option/Arg.h"
#include "llvm/Option/ArgList.h"
#include "llvm/Option/OptTable.h"
#include "llvm/Option/Option.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

// The header that declares it is in a package that few have; it changed its namespace in LLVM 22.
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

namespace {
/// The third bit of an option's visibility: it is taken by `clang -cc1`.
constexpr unsigned CC1 = 1 << 2;

bool isSpelled(const OptTable &Table, const Option &Wanted, const std::string &Prefix) {
  bool Exact = Wanted.getKind() == Option::FlagClass || Wanted.getKind() == Option::SeparateClass;
  std::string Word = Prefix + Wanted.getName().str() + (Exact ? "" : "~");
  const char *Words[] = {Word.c_str(), "value"};
  unsigned MissingIndex = 0, MissingCount = 0;
  InputArgList Parsed = Table.ParseArgs(Words, MissingIndex, MissingCount, Visibility(CC1));
  for (const Arg *Found : Parsed) {
    const Arg *Spelled = Found->getAlias() ? Found->getAlias() : Found;
    if (Spelled->getOption().getID() == Wanted.getID())
      return true;
  }
  return false;
}
} // namespace

int main() {
  const OptTable &Table = getDriverOptTable();
  for (unsigned Number = 1; Number <= Table.getNumOptions(); ++Number) {
    Option One = Table.getOption(Number);
    if (!One.isValid() || !One.hasVisibilityFlag(CC1))
      continue;
    for (const char *Prefix : {"-", "--"})
      if (isSpelled(Table, One, Prefix))
        llvm::outs() << unsigned(One.getKind()) << '\t' << Prefix << One.getName() << '\t' << '-'
                     << One.getUnaliasedOption().getPrefixedName().substr(1) << '\n';
  }
}
