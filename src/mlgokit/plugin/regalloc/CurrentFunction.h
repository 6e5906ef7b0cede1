// The function that is in the allocator, and its plan: what the advisors of evictions and of priorities share.
#ifndef MLGOKIT_REGALLOC_CURRENTFUNCTION_H
#define MLGOKIT_REGALLOC_CURRENTFUNCTION_H

#include "regalloc/FunctionPlan.h"
#include "trials/OverrideTable.h"

namespace mlgokit {

/// Makes the plan for a function that comes to the allocator; none if it is allocated by policy or as LLVM would. If
/// there are trials of it, they are made first, and this returns in each of their copies too. With
/// \p NumbersQuestions, a compilation that asks for trials has a plan that only counts for every other function.
FunctionPlan *enterFunction(llvm::MachineFunction &MF, const OverrideTable *Table, bool NumbersQuestions);

/// The plan of the function that was entered last in this thread, if it is this one.
FunctionPlan *planOf(const llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
