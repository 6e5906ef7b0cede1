// Many allocations of one function within one compilation, each in a copy of the compiler: docs/formats.md, "Trials of
// allocations".
#ifndef MLGOKIT_REGALLOC_TRIALS_H
#define MLGOKIT_REGALLOC_TRIALS_H

#include "regalloc/OverridePlan.h"

#include <memory>

namespace mlgokit {

/// Whether MLGOKIT_TRIALS names trials to make.
bool hasTrials();

/// Makes the trials of a function, each in a copy of the process; what they cost goes to MLGOKIT_TRIED. Returns in
/// each copy with the plan to follow, at last in this process, with none.
std::unique_ptr<FunctionPlan> runTrials(const llvm::MachineFunction &MF, const FunctionShape &Shape);

} // namespace mlgokit

#endif
