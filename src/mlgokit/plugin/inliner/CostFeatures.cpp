#include "inliner/CostFeatures.h"

#include "shared/Settings.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/AssumptionCache.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

/// Whether nothing comes behind a call, which then is worth no growth.
bool neverReturns(const CallBase &Call) {
  const auto *Invoke = dyn_cast<InvokeInst>(&Call);
  return isa<UnreachableInst>((Invoke ? Invoke->getNormalDest() : Call.getParent())->getTerminator());
}

int featureOf(const InlineCostFeatures &Features, InlineCostFeatureIndex Index) { return Features[size_t(Index)]; }

} // namespace

AnalysisKey CostTraitsAnalysis::Key;

CostTraits CostTraitsAnalysis::run(Function &F, FunctionAnalysisManager &) {
  CostTraits Traits;
  SmallPtrSet<const Value *, 32> Loaded;
  for (const BasicBlock &Block : F)
    for (const Instruction &I : Block) {
      if (const auto *Load = dyn_cast<LoadInst>(&I)) {
        Traits.RepeatedLoads |= !Loaded.insert(Load->getPointerOperand()).second;
      } else if (const auto *Call = dyn_cast<CallBase>(&I); Call && !isa<IntrinsicInst>(I)) {
        const Function *Callee = Call->getCalledFunction();
        Traits.IndirectCalls |= !Callee;
        Traits.NamedCosts |= Call->getFnAttr("call-inline-cost").isValid();
        Traits.Favours |=
            Call->getFnAttr("call-threshold-bonus").isValid() || (Callee && Callee->getName().ends_with("_chk"));
      }
    }
  return Traits;
}

CostFeatures::CostFeatures(const Module &M, FunctionAnalysisManager &FAM) : FAM(FAM) {
  FAM.registerPass([] { return CostTraitsAnalysis(); });
  // Other targets may have prices of their own for a call.
  const bool IsUsual = Triple(M.getTargetTriple()).isX86();
  MayBeSum = IsUsual && !isGiven("inline-memaccess-cost");
  HasThreshold = IsUsual && !isGiven("inline-all-viable-calls") && !M.getProfileSummary(/*IsCS=*/false) &&
                 !M.getProfileSummary(/*IsCS=*/true);
}

std::optional<InlineCostFeatures> CostFeatures::features(CallBase &Call) const {
  auto Assumptions = [&](Function &F) -> AssumptionCache & { return FAM.getResult<AssumptionAnalysis>(F); };
  return getInliningCostFeatures(Call, FAM.getResult<TargetIRAnalysis>(*Call.getCalledFunction()), Assumptions);
}

std::optional<int> CostFeatures::estimate(CallBase &Call, const InlineCostFeatures &Features) const {
  if (!isSum(Call, Features)) {
    auto Assumptions = [&](Function &F) -> AssumptionCache & { return FAM.getResult<AssumptionAnalysis>(F); };
    return getInliningCostEstimate(Call, FAM.getResult<TargetIRAnalysis>(*Call.getCalledFunction()), Assumptions);
  }
  using Index = InlineCostFeatureIndex;
  int Sum = 0;
  for (Index Summand :
       {Index::sroa_losses, Index::call_penalty, Index::call_argument_setup, Index::load_relative_intrinsic,
        Index::lowered_call_arg_setup, Index::indirect_call_penalty, Index::jump_table_penalty,
        Index::case_cluster_penalty, Index::switch_default_dest_penalty, Index::switch_penalty,
        Index::unsimplified_common_instructions, Index::num_loops, Index::callsite_cost})
    Sum += featureOf(Features, Summand);
  return Sum;
}

std::optional<bool> CostFeatures::heuristic(CallBase &Call, int Estimate, const InlineParams &Params) const {
  const int Threshold = std::min(Params.DefaultThreshold, Params.OptMinSizeThreshold.value_or(Params.DefaultThreshold));
  if (!HasThreshold || Threshold < 1 || Params.EnableDeferral.value_or(false) || !Call.getCaller()->hasMinSize() ||
      neverReturns(Call) || Call.getFnAttr("function-inline-threshold").isValid())
    return std::nullopt;
  const CostTraits &Traits = FAM.getResult<CostTraitsAnalysis>(*Call.getCalledFunction());
  return Traits.IndirectCalls || Traits.Favours ? std::nullopt : std::optional(Estimate < Threshold);
}

bool CostFeatures::isSum(CallBase &Call, const InlineCostFeatures &Features) const {
  using Index = InlineCostFeatureIndex;
  // Of these LLVM notes only that they are there.
  if (!MayBeSum || featureOf(Features, Index::cold_cc_penalty) || featureOf(Features, Index::last_call_to_static_bonus))
    return false;
  if (Call.getFnAttr("function-inline-cost").isValid() || Call.getFnAttr("function-inline-cost-multiplier").isValid())
    return false;
  const CostTraits &Traits = FAM.getResult<CostTraitsAnalysis>(*Call.getCalledFunction());
  return !Traits.NamedCosts && !Traits.IndirectCalls &&
         !(Traits.RepeatedLoads && featureOf(Features, Index::load_elimination));
}

} // namespace mlgokit
