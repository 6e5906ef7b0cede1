// How else the code of one function is generated, beside its passes: attributes that it has, and options of LLVM that
// have another value meanwhile. In tables they stand with passes: docs/formats.md, "Pass table".
#ifndef MLGOKIT_PASSES_FUNCTIONOPTIONS_H
#define MLGOKIT_PASSES_FUNCTIONOPTIONS_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace llvm {
class Function;
namespace cl {
class Option;
} // namespace cl
} // namespace llvm

namespace mlgokit {

class OverridePlan;

class FunctionOptions {
public:
  /// To be made on the thread that generates the code. Options are those of the whole process, so none is set on a
  /// thread that may have others beside it.
  FunctionOptions();
  ~FunctionOptions() { reset(); }
  FunctionOptions(const FunctionOptions &) = delete;
  FunctionOptions &operator=(const FunctionOptions &) = delete;

  /// Asks the plan of \p F about each, and sets what it wants; options until the reset.
  void set(llvm::Function &F, OverridePlan &Plan);
  void reset();

private:
  struct Choice {
    uint32_t Number; // in tables
    llvm::cl::Option *Option;
    llvm::StringRef Value;
  };
  llvm::SmallVector<Choice, 16> Choices; // that can be made here
  llvm::SmallVector<llvm::cl::Option *, 4> Changed;
};

} // namespace mlgokit

#endif
