// The inline advisor that asks a policy, explores, and writes LLVM's training log.
#ifndef MLGOKIT_INLINER_ADVISOR_H
#define MLGOKIT_INLINER_ADVISOR_H

#include "inliner/DecisionTable.h"
#include "shared/Settings.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>
#include <optional>

namespace mlgokit {

/// Makes the advisor for \p M, or says in one sentence why it cannot be made; null if \p M is to stay as LLVM has it.
/// In link-time optimization and the compile steps before it, a policy leaves all to LLVM unless it is asked for; a
/// rule or a table does not. \p AtLink says that \p M is what a full link-time optimization merged; \p Table is the one
/// of the settings, if there is one.
llvm::Expected<std::unique_ptr<llvm::InlineAdvisor>> createAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                                                                   llvm::FunctionAnalysisManager &FAM,
                                                                   const llvm::InlineParams &Params, const Settings &S,
                                                                   llvm::ThinOrFullLTOPhase Phase, bool AtLink,
                                                                   std::optional<DecisionTable> Table);

} // namespace mlgokit

#endif
