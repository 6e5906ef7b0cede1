// A policy of passes: whether an optional pass runs on a function that no table knows.
#ifndef MLGOKIT_PASSES_PASSPOLICY_H
#define MLGOKIT_PASSES_PASSPOLICY_H

#include "shared/Exploration.h"
#include "shared/Files.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
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

/// Decides for one module. Where trials decide, it only listens.
class PassPolicy {
public:
  /// For the optimizer. Null if nobody gave a policy for the target of \p M and nobody wants a log.
  static llvm::Expected<std::shared_ptr<PassPolicy>> openOptimizer(const Settings &S, const llvm::Module &M);
  /// For code generation: the same as for the optimizer, if this thread optimized \p M before, so that there is one
  /// log.
  static llvm::Expected<std::shared_ptr<PassPolicy>> openCodeGenerator(const Settings &S, const llvm::Module &M,
                                                                       bool OnlyListens);

  /// Whether it is to be asked about passes of the optimizer: it decides about some, or somebody wants a log.
  bool hearsOptimizer() const;
  /// The passes of the optimizer that are left out of \p F, by their numbers in tables.
  std::vector<uint32_t> leftOutOfOptimizer(const llvm::Function &F);

  /// Whether it decides about the code generation of \p F; it may be asked about it then.
  bool enter(const llvm::Function &F);
  /// Whether the pass with the argument \p Pass, which asks for \p F, is left out. \p Code is what there is of its
  /// instructions.
  bool leavesOut(const llvm::Function &F, const llvm::MachineFunction *Code, llvm::StringRef Pass);

private:
  explicit PassPolicy(const Settings &S);
  static llvm::Expected<std::shared_ptr<PassPolicy>> open(const Settings &S, const llvm::Module &M);
  llvm::Error connectPolicy(const llvm::Module &M);
  bool isForIt(const llvm::Function &F) const;

  /// A function that was entered.
  struct Known {
    std::vector<int64_t> Values;     // all features: those of the function, then those of the question
    std::vector<uint32_t> Questions; // by pass, how often it asked
    bool IsLlvms = false;            // whether the policy has nothing to say in it
  };
  /// A function that comes to its first question.
  static Known begin(const llvm::Function &F);
  /// Decides about the pass in one place among the decided ones.
  bool decide(const llvm::Function &F, Known &K, size_t Place);

  const Settings S;
  bool OnlyListens = false;
  std::optional<Policy> P; // none if LLVM's own decisions stand
  std::unique_ptr<llvm::Logger> Log;
  std::vector<size_t> Sources; // where each of the policy's features is among the values
  std::vector<double> Row;
  llvm::SmallVector<bool> Knows; // by pass, whether the policy decides about it
  llvm::DenseMap<const llvm::Function *, Known> Functions;
  FunctionDraws Draws;
  const llvm::Function *Current = nullptr; // whose draws these are; a function of the optimizer may be no more
};

} // namespace mlgokit

#endif
