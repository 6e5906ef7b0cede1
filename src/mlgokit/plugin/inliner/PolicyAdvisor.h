// An advisor that asks what LLVM's MLInlineAdvisor asks, and computes less on the way: LLVM's finds loops anew after
// each inlining, for counts that are no feature, and analyses a callee twice. tests/llvm/test_policy_advisor.py holds
// the two to the same questions and to the same code.
#ifndef MLGOKIT_INLINER_POLICYADVISOR_H
#define MLGOKIT_INLINER_POLICYADVISOR_H

#include "inliner/Decider.h"

#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>

namespace mlgokit {

/// Whether the advisor can stand for LLVM's in \p M: nobody wants its remarks, or what its own options do.
bool canStandForLlvms(const llvm::Module &M);

std::unique_ptr<llvm::InlineAdvisor> makePolicyAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                                                       llvm::FunctionAnalysisManager &FAM,
                                                       const llvm::InlineParams &Params,
                                                       std::unique_ptr<Decider> Decides);

} // namespace mlgokit

#endif
