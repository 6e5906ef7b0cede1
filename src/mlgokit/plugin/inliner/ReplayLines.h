// Decisions of the inliner as lines of LLVM's inline replay, for compilers that load no plugin.
#ifndef MLGOKIT_INLINER_REPLAYLINES_H
#define MLGOKIT_INLINER_REPLAYLINES_H

#include "shared/Settings.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace mlgokit {

/// Makes an advisor that answers as \p Inner does and writes each answer to the file that the settings name, one line
/// for each question, as LLVM's -cgscc-inline-replay= reads it. Calls without a location, and names that such a line
/// cannot hold, have none. Without that setting it is \p Inner itself.
llvm::Expected<std::unique_ptr<llvm::InlineAdvisor>> withReplayLines(std::unique_ptr<llvm::InlineAdvisor> Inner,
                                                                     llvm::Module &M,
                                                                     llvm::FunctionAnalysisManager &FAM,
                                                                     const Settings &S);

} // namespace mlgokit

#endif
