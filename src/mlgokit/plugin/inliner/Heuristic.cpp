#include "inliner/Heuristic.h"

#include "majors/InlineAdvisor.h"

#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/InlineCost.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace mlgokit {

bool heuristicInlines(CallBase &Call, FunctionAnalysisManager &FAM, const InlineParams &Params) {
  Function &Caller = *Call.getCaller();
  auto *Profile = FAM.getResult<ModuleAnalysisManagerFunctionProxy>(Caller).getCachedResult<ProfileSummaryAnalysis>(
      *Caller.getParent());
  auto &ORE = FAM.getResult<OptimizationRemarkEmitterAnalysis>(Caller);
  auto Assumptions = [&](Function &F) -> AssumptionCache & { return FAM.getResult<AssumptionAnalysis>(F); };
  auto Frequencies = [&](Function &F) -> BlockFrequencyInfo & { return FAM.getResult<BlockFrequencyAnalysis>(F); };
  auto Libraries = [&](Function &F) -> const TargetLibraryInfo & { return FAM.getResult<TargetLibraryAnalysis>(F); };
  auto &CalleeTarget = FAM.getResult<TargetIRAnalysis>(*Call.getCalledFunction());
  auto Cost = [&](CallBase &C) {
    return getInlineCost(C, Params, CalleeTarget, Assumptions, Libraries, Frequencies, Profile, nullptr);
  };
  return inlineByCost(Call, CalleeTarget, Cost, ORE, Params.EnableDeferral.value_or(false)).has_value();
}

} // namespace mlgokit
