// Attributes of one function, and options (cl::opt) that have another value while that function's code is generated.
// Tables list them among the passes: docs/formats.md, "Pass table".
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
  /// To be constructed on the thread that generates the code. Options are global, so they are set on the main thread
  /// alone: others may generate code at the same time, as in parallel ThinLTO.
  FunctionOptions();
  ~FunctionOptions() { reset(); }
  FunctionOptions(const FunctionOptions &) = delete;
  FunctionOptions &operator=(const FunctionOptions &) = delete;

  /// Sets the attributes and options that \p Plan has for \p F; options hold until reset(), which comes
  /// before the next function.
  void set(llvm::Function &F, OverridePlan &Plan);
  void reset();

private:
  struct Candidate {
    uint32_t Number; // of a pass, in tables
    llvm::cl::Option *Option;
    llvm::StringRef Value;
  };
  llvm::SmallVector<Candidate, 16> Candidates; // that may be set
  llvm::SmallVector<llvm::cl::Option *, 4> Changed;
};

} // namespace mlgokit

#endif
