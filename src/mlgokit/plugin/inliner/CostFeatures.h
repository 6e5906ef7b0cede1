// LLVM's cost features of a call and its cost estimate, in one analysis of the callee where that is enough.
//
// LLVM's MLInlineAdvisor analyses a callee once for its cost estimate, and again for the summands of a cost. The
// estimate is the sum of these, but for a few cases that are seen beforehand; only they are analysed twice.
#ifndef MLGOKIT_INLINER_COSTFEATURES_H
#define MLGOKIT_INLINER_COSTFEATURES_H

#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/IR/PassManager.h"

#include <optional>

namespace mlgokit {

/// What a callee may have that LLVM's estimate counts and its cost features do not.
struct CostTraits {
  bool IndirectCalls = false; // an argument may say whom they call, which is then worth a bonus
  bool RepeatedLoads = false; // of one address: they are free unless something may have been stored
  bool NamedCosts = false;    // calls that say themselves what they cost
  bool Favours = false;       // calls that the heuristic knows to be free, or to be worth a bonus
};

class CostTraitsAnalysis : public llvm::AnalysisInfoMixin<CostTraitsAnalysis> {
public:
  static llvm::AnalysisKey Key;
  using Result = CostTraits;
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM);
};

class CostFeatures {
public:
  CostFeatures(const llvm::Module &M, llvm::FunctionAnalysisManager &FAM);

  /// LLVM's cost features; none if the call cannot be inlined.
  std::optional<llvm::InlineCostFeatures> features(llvm::CallBase &Call) const;
  /// LLVM's cost estimate of a call with these \p Features; none if it cannot be inlined.
  std::optional<int> estimate(llvm::CallBase &Call, const llvm::InlineCostFeatures &Features) const;
  /// What LLVM's heuristic says of a call that it may inline and that has this \p Estimate; none if it has to be asked.
  /// For a caller of minimal size its cost is the estimate, which only grows, and it has one threshold.
  std::optional<bool> heuristic(llvm::CallBase &Call, int Estimate, const llvm::InlineParams &Params) const;

private:
  bool isSum(llvm::CallBase &Call, const llvm::InlineCostFeatures &Features) const;

  llvm::FunctionAnalysisManager &FAM;
  bool MayBeSum;     // on this target, with these options
  bool HasThreshold; // that no option, target or profile changes, if the caller is for minimal size
};

} // namespace mlgokit

#endif
