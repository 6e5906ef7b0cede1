// A trial: the code of one function is made in a copy of the compiler, which tells what that cost and ends.
#ifndef MLGOKIT_TRIALS_TRIALCOPY_H
#define MLGOKIT_TRIALS_TRIALCOPY_H

#include "trials/OverridePlan.h"
#include "trials/Overrides.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"

#include <array>
#include <cstdint>
#include <functional>
#include <optional>

#include <sys/types.h>

namespace llvm {
class MachineFunction;
}

namespace mlgokit {

/// What a trial is judged by: LLVM's costs of an allocation and instructions executed, both by estimate; bytes of code,
/// unwind instructions, bytes of jump tables.
constexpr size_t AllocationCosts = 5, ExecutedAt = AllocationCosts, CodeAt = ExecutedAt + 1, UnwindAt = CodeAt + 1,
                 TablesAt = UnwindAt + 1, MeasureCount = TablesAt + 1;
using Measures = std::array<double, MeasureCount>;

/// How a copy makes its trial.
struct TrialOrder {
  const llvm::Function &Function;
  std::function<llvm::MachineFunction *()> Code; // none before instructions are selected
  double Seconds;                                // of processor time
  bool ToTheEnd;                                 // of the function's code, not of its allocation
  bool Executed;                                 // whether to estimate what is executed
  int Answer;                                    // the descriptor
};

/// Who decides otherwise in the copy, in the order of the lists in Overrides; none where nobody does.
using Deciders = std::array<const OverridePlan *, 3>;

/// What a copy told.
struct TrialAnswer {
  Measures Found{};
  Overrides Made;
};

/// Nothing if \p Bytes are not a whole answer.
std::optional<TrialAnswer> readAnswer(llvm::StringRef Bytes);

/// To be called in a new copy of the process \p Parent; if the compilation then goes on, it ends with the answer.
void becomeTrial(TrialOrder Order, pid_t Parent);

/// In a copy: whose questions and overrides belong to the answer. They live to its end.
void decideBy(const Deciders &Plans);

/// Whether this process is a copy.
bool isTrial();

/// In a copy: the compiler comes to this function. If it is another one, and the trial's has instructions by now, it is
/// done with and was not emitted, as where a pass over the module outlines; what there is of it is measured.
void comeTo(const llvm::Function &F);

/// In a copy: no more code is generated.
void leaveModule();

} // namespace mlgokit

#endif
