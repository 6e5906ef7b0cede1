// The advisor of a policy that only decides: no log, no exploration, no table.
//
// It decides as the advisor of Advisor.cpp does, which is LLVM's MLInlineAdvisor, and computes less on the way: what
// only a log needs, loops, module-wide counts. tests/llvm/test_policy_advisor.py holds the two to the same code.
#ifndef MLGOKIT_INLINER_POLICYADVISOR_H
#define MLGOKIT_INLINER_POLICYADVISOR_H

#include "shared/Policy.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Analysis/InlineAdvisor.h"

#include <memory>
#include <vector>

namespace mlgokit {

/// Whether the advisor can stand for LLVM's here. \p Sources says where each of the policy's features is: \p Llvms of
/// LLVM's come first, then the plugin's.
bool canOnlyDecide(const llvm::Module &M, llvm::ArrayRef<size_t> Sources, size_t Llvms);

std::unique_ptr<llvm::InlineAdvisor> makePolicyAdvisor(llvm::Module &M, llvm::ModuleAnalysisManager &MAM,
                                                       llvm::FunctionAnalysisManager &FAM,
                                                       const llvm::InlineParams &Params, Policy P,
                                                       std::vector<size_t> Sources);

} // namespace mlgokit

#endif
