// A trial of an allocation: one function is allocated in a copy of the compiler, which tells what that cost and ends.
#ifndef MLGOKIT_REGALLOC_TRIALCOPY_H
#define MLGOKIT_REGALLOC_TRIALCOPY_H

#include "regalloc/AllocationTable.h"
#include "regalloc/OverridePlan.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/CodeGen/MachineFunction.h"

#include <array>
#include <cstdint>
#include <optional>

#include <sys/types.h>

namespace mlgokit {

/// What a trial is judged by: LLVM's costs of an allocation, bytes of code, unwind instructions.
constexpr size_t CostCount = 5, CodeAt = CostCount, UnwindAt = CodeAt + 1, MeasureCount = UnwindAt + 1;
using Measures = std::array<double, MeasureCount>;

/// What a copy told.
struct TrialAnswer {
  Measures Found{};
  Overrides Made;
};

/// Nothing if \p Bytes are not a whole answer.
std::optional<TrialAnswer> readAnswer(llvm::StringRef Bytes);

/// How a copy makes its trial.
struct TrialOrder {
  const llvm::MachineFunction &Function;
  const FunctionPlan &Plan;
  double Seconds; // of processor time
  bool ToTheEnd;  // of the function's code, not of its allocation
  int Answer;     // the descriptor
};

/// To be called in a new copy of the process \p Parent; if the compilation then goes on, it ends with the answer.
void becomeTrial(const TrialOrder &Order, pid_t Parent);

/// Whether this process is a copy.
bool isTrial();

/// In a copy: the function is allocated and left no costs, or LLVM would have said so; if its code is to be measured,
/// it was not emitted yet, and what \p IsThere of it is measured. Ends the copy.
void endTrial(bool IsThere);

} // namespace mlgokit

#endif
