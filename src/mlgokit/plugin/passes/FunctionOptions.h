// Attributes of one function, and options (cl::opt) that have another value while passes run on that function.
// Tables list them among the passes: docs/formats.md, "Pass table".
#ifndef MLGOKIT_PASSES_FUNCTIONOPTIONS_H
#define MLGOKIT_PASSES_FUNCTIONOPTIONS_H

#include "trials/Overrides.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
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

/// Options that passes of the code generator read for each function anew, and that nothing but the command line sets:
/// cl::Option::reset() gives them their defaults, not what a target set.
extern const llvm::ArrayRef<llvm::StringLiteral> CodeGeneratorOptions;

class FunctionOptions {
public:
  /// To be constructed on the thread on which the passes run. Options are global, so they are set on the main thread
  /// alone: on others passes may run at the same time, as in parallel ThinLTO.
  template <typename Range> explicit FunctionOptions(const Range &Texts) {
    if (isMainThread())
      for (llvm::StringRef Text : Texts)
        add(Text);
  }
  ~FunctionOptions() { reset(); }
  FunctionOptions(const FunctionOptions &) = delete;
  FunctionOptions &operator=(const FunctionOptions &) = delete;

  /// Sets the attributes and options that \p Plan has for \p F; options hold until reset(), which comes
  /// before the next function.
  void set(llvm::Function &F, OverridePlan &Plan);
  /// Sets the options that are among what is left out of a function.
  void set(llvm::ArrayRef<Override> LeftOut);
  /// Sets the attributes and options of \p F that \p IsWanted names.
  void set(llvm::Function &F, llvm::function_ref<bool(llvm::StringRef Name)> IsWanted);
  void reset();

private:
  struct Candidate {
    uint32_t Number; // of a pass, in tables
    llvm::cl::Option *Option;
    llvm::StringRef Text, Value;
  };
  static bool isMainThread();
  void add(llvm::StringRef Text);
  bool take(const Candidate &C);
  llvm::SmallVector<Candidate, 16> Candidates; // that may be set
  llvm::SmallVector<llvm::cl::Option *, 4> Changed;
};

} // namespace mlgokit

#endif
