// A policy of passes: whether a pass of the code generator runs on a function that no table knows.
#ifndef MLGOKIT_PASSES_PASSPOLICY_H
#define MLGOKIT_PASSES_PASSPOLICY_H

#include "shared/Exploration.h"
#include "shared/Files.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace llvm {
class Function;
class MachineFunction;
class Module;
} // namespace llvm

namespace mlgokit {

/// The passes that a policy decides about, by LLVM's arguments; all others run.
llvm::ArrayRef<llvm::StringRef> decidedPasses();

/// Decides for the code generation of one module.
class PassPolicy {
public:
  /// Null if nobody gave a policy for the target of \p M and nobody wants a log. \p OnlyListens says that others
  /// decide, as in trials.
  static llvm::Expected<std::unique_ptr<PassPolicy>> open(const Settings &S, const llvm::Module &M, bool OnlyListens);

  /// Whether it decides about \p F; it may be asked about it then.
  bool enter(const llvm::Function &F);
  /// Whether the pass with the argument \p Pass, which asks for \p F, is left out. \p Code is what there is of its
  /// instructions.
  bool leavesOut(const llvm::Function &F, const llvm::MachineFunction *Code, llvm::StringRef Pass);

private:
  explicit PassPolicy(const Settings &S);
  llvm::Error connectPolicy(const llvm::Module &M);

  /// A function that was entered.
  struct Known {
    std::vector<int64_t> Values;     // all features: those of the function, then those of the question
    std::vector<uint32_t> Questions; // by pass, how often it asked
  };

  const Settings S;
  std::optional<Policy> P; // none if LLVM's own decisions stand
  std::unique_ptr<llvm::Logger> Log;
  std::vector<size_t> Sources; // where each of the policy's features is among the values
  std::vector<double> Row;
  std::vector<bool> Knows; // by pass, whether the policy decides about it
  llvm::DenseMap<const llvm::Function *, Known> Functions;
  FunctionDraws Draws;
  const llvm::Function *Current = nullptr; // whose draws these are
};

} // namespace mlgokit

#endif
