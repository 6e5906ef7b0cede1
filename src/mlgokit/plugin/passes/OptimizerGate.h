// Which optional passes of the optimizer run on a function, from the moment at which the inliner begins.
#ifndef MLGOKIT_PASSES_OPTIMIZERGATE_H
#define MLGOKIT_PASSES_OPTIMIZERGATE_H

#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgokit {

/// Where the list of passes is to be written: MLGOKIT_CHANGED; null if none is wanted.
const char *listPath();

/// Lets the plugin be asked by the passes of a pipeline, if there is a table of them or a policy, or a list of them is
/// wanted.
void registerOptimizerGate(llvm::PassBuilder &Builder);

/// The inliner begins with \p M: its functions are as decision tables know them, and the gate goes by its table from
/// now on, and where there is none \p ByPolicy, which only listens if there are decisions that were tuned.
void enterOptimizerGate(llvm::Module &M, bool ByPolicy, bool HasDecisions);

} // namespace mlgokit

#endif
