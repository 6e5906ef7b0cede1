// LLVM's ML advisor of the inliner and its cost analysis: which features there are, and how they are asked.
#ifndef MLGOKIT_MAJORS_INLINEADVISOR_H
#define MLGOKIT_MAJORS_INLINEADVISOR_H

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Config/llvm-config.h"

#include <optional>
#include <vector>

namespace mlgokit {

/// The features that LLVM's ML advisor computes, in its order.
inline const std::vector<llvm::TensorSpec> &llvmFeatures() {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::MLInlineAdvisor::getInitialFeatureMap();
#else
  return llvm::FeatureMap;
#endif
}

/// What LLVM's ML advisor is made with, to have the model that \p Make gives for the features.
template <class Maker> auto modelFrom(Maker Make) {
#if LLVM_VERSION_MAJOR >= 22
  return Make;
#else
  return Make(llvmFeatures());
#endif
}

/// LLVM's decision by cost; none if the call is not to be inlined.
inline std::optional<llvm::InlineCost> inlineByCost(llvm::CallBase &Call, llvm::TargetTransformInfo &CalleeTarget,
                                                    llvm::function_ref<llvm::InlineCost(llvm::CallBase &)> Cost,
                                                    llvm::OptimizationRemarkEmitter &ORE, bool Deferral) {
#if LLVM_VERSION_MAJOR >= 20
  return llvm::shouldInline(Call, CalleeTarget, Cost, ORE, Deferral);
#else
  (void)CalleeTarget;
  return llvm::shouldInline(Call, Cost, ORE, Deferral);
#endif
}

} // namespace mlgokit

#endif
