// LLVM's MLInlineAdvisor, with our answers: where its remarks or its own options are wanted.
#ifndef MLGOKIT_INLINER_LLVMADVISOR_H
#define MLGOKIT_INLINER_LLVMADVISOR_H

#include "inliner/Decider.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace mlgokit {

std::unique_ptr<llvm::InlineAdvisor> makeLlvmAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                                                     llvm::FunctionAnalysisManager &FAM,
                                                     const llvm::InlineParams &Params,
                                                     std::unique_ptr<Decider> Decides);

} // namespace mlgokit

#endif
