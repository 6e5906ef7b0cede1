// Many allocations of one function within one compilation: docs/formats.md, "Trials of allocations".
#ifndef MLGOKIT_REGALLOC_TRIALS_H
#define MLGOKIT_REGALLOC_TRIALS_H

#include "regalloc/Allocation.h"

namespace mlgokit {

/// Whether MLGOKIT_TRIALS names trials to make.
bool hasTrials();

/// Makes the trials of a function, each in a copy of the process; what they cost goes to MLGOKIT_TRIED. Returns in
/// each copy with the plan to follow, at last in this process, with none.
std::unique_ptr<Plan> runTrials(const llvm::MachineFunction &MF, const FunctionShape &Shape);

/// In a copy: the function is allocated and left no costs, or LLVM would have said so; if its code is to be measured,
/// it was not emitted yet, and what \p IsThere of it is measured. Ends the copy.
void endTrial(bool IsThere);

} // namespace mlgokit

#endif
