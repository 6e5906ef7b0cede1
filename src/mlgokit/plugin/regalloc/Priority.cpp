// Priority: in which order live ranges get their registers, and how heavy each of them is when others want its
// register.
//
// LLVM's own ML advisor fills three features, to which ours are added. A priority is an unsigned in the allocator but a
// float from a model, so the heuristic's own value does not go through the model. LLVM asks for a weight nowhere; as
// every live range asks for its priority before it competes, its weight is scaled then.
#include "majors/RegAllocAbi.h"
#include "majors/RegAllocAdvisors.h"
#include "regalloc/CurrentFunction.h"
#include "regalloc/RangeDecider.h"
#include "regalloc/RangeFeatures.h"
#include "regalloc/RegAlloc.h"
#include "regalloc/RegAllocAnalysis.h"
#include "shared/Settings.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr RangeDecider::Kind OfPriorities = {Problem::RegallocPriority, "priority",   "priority_default",
                                             /*HasWholeDefault=*/true,  drawPriority, anyPriority};
constexpr RangeDecider::Kind OfWeights = {Problem::RegallocWeight,   "log2_factor", "log2_factor_default",
                                          /*HasWholeDefault=*/false, drawFactor,    anyFactor};

/// Holds what LLVM's advisor says of a live range, and decides for one module.
class Model final : public MLModelRunner {
public:
  explicit Model(LLVMContext &Ctx) : MLModelRunner(Ctx, MLModelRunner::Kind::NoOp, 3) {
    setUpBufferForTensor(0, TensorSpec::createSpec<int64_t>("li_size", {1}), &Values.Size);
    setUpBufferForTensor(1, TensorSpec::createSpec<int64_t>("stage", {1}), &Values.Stage);
    setUpBufferForTensor(2, TensorSpec::createSpec<float>("weight", {1}), &Values.Weight);
    Values.Ours.resize(rangeFeatureNames().size());
  }

  Error open(const Module &Of) {
    Expected<Settings> Read = readSettings();
    if (!Read)
      return Read.takeError();
    for (RangeDecider *D : {&Priorities, &Weights})
      if (Error E = D->open(*Read, Of))
        return E;
    return refuseOptions({"regalloc-enable-priority-advisor", "regalloc-priority-interactive-channel-base"},
                         policySettingOf(Weights.isWanted() && !Priorities.isWanted() ? Problem::RegallocWeight
                                                                                      : Problem::RegallocPriority));
  }

  /// Lets a policy of a trial decide about what it is for.
  Error decideBy(StringRef Bytes) {
    Expected<Policy> Tried = Policy::parse(Bytes, "of a trial");
    if (!Tried)
      return Tried.takeError();
    const bool OfWeight = Tried->problem() == nameOf(Problem::RegallocWeight);
    return (OfWeight ? Weights : Priorities)
        .decideBy(parsePolicy(OfWeight ? Problem::RegallocWeight : Problem::RegallocPriority, Bytes, "of a trial"));
  }

  RangeDecider Priorities{OfPriorities}, Weights{OfWeights};
  RangeValues Values;

private:
  void *evaluateUntyped() override { return &Unused; }

  float Unused = 0;
};

/// Lets LLVM's ML advisor fill the buffers, then asks the model.
class Advisor final : public MLPriorityAdvisor {
public:
  Advisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes, Model &M, FunctionPlan *P)
      : MLPriorityAdvisor(MF, RA, Indexes, &M), MF(MF), Observer(MF, *Indexes), M(M), P(P),
        DecidesPriorities(M.Priorities.isWantedIn(MF)),
        DecidesWeights(M.Weights.isWantedIn(MF) && (!P || P->ByRule || P->hasTriedPolicy())) {}

private:
  unsigned getPriority(const LiveInterval &Range) const override {
    if (DecidesWeights && Range.isSpillable() && Weighed.insert(Range.reg().id()).second)
      weigh(Range);
    if (!P)
      return decide(Range);
    const std::optional<PlannedOverride> Wanted = P->Priorities.next(P->Shape.numberOf(Range.reg()));
    if (P->hasTriedPolicy())
      return decide(Range);
    const unsigned Default = getDefaultAdvisor().getPriority(Range);
    if (Wanted || !P->ByRule || M.Priorities.followsHeuristic())
      return P->priority(Default, Wanted);
    return P->priorityNear(decide(Range), Default);
  }

  unsigned decide(const LiveInterval &Range) const {
    const auto Heuristic = [&] { return getDefaultAdvisor().getPriority(Range); };
    if (!DecidesPriorities)
      return Heuristic();
    observe(Range, M.Priorities);
    const std::optional<float> Decided = M.Priorities.decide(MF, M.Values, Heuristic);
    return Decided ? unsigned(*Decided) : Heuristic();
  }

  void weigh(const LiveInterval &Range) const {
    observe(Range, M.Weights);
    const std::optional<float> Decided = M.Weights.decide(MF, M.Values, [] { return 0; });
    if (!Decided)
      return;
    // An infinite weight would say that the live range must not be spilled.
    const double Scaled = double(Range.weight()) * std::exp2(double(*Decided));
    const_cast<LiveInterval &>(Range).setWeight(float(std::min(Scaled, double(std::numeric_limits<float>::max()))));
  }

  void observe(const LiveInterval &Range, const RangeDecider &D) const {
    getPriorityImpl(Range);
    if (D.seesOurs())
      Observer.observe(Range, getDefaultAdvisor().getPriority(Range), M.Values.Ours);
  }

  const MachineFunction &MF;
  mutable RangeObserver Observer;
  Model &M;
  FunctionPlan *const P; // it lives as long as the function is in the allocator
  const bool DecidesPriorities, DecidesWeights;
  mutable DenseSet<unsigned> Weighed; // registers whose weight is decided
};

/// What the plugin keeps for the code generation of one module.
class Desk {
public:
  explicit Desk(Module &Of) : M(Of.getContext()) {
    Error E = M.open(Of);
    Failed = bool(E);
    if (Failed)
      Of.getContext().emitError("mlgokit: " + toString(std::move(E)));
  }

  static void prepare(TargetPassConfig *Config) { insertScoring(Config, /*ForEvictions=*/false); }

  std::unique_ptr<RegAllocPriorityAdvisor> advise(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes) {
    leaveFirstTimeCost();
    FunctionPlan *const Planned = planOf(MF);
    const bool StandsAside = Planned ? !Planned->ByRule && !Planned->hasTriedPolicy() && Planned->Priorities.isIdle()
                                     : !M.Priorities.isWantedIn(MF) && !M.Weights.isWantedIn(MF);
    // Only a copy has one, and it ends with this function.
    if (Planned && Planned->hasTriedPolicy())
      if (Error E = M.decideBy(Planned->TriedPolicy))
        report_fatal_error(std::move(E));
    if (Failed || StandsAside)
      return std::make_unique<DefaultPriorityAdvisor>(MF, RA, Indexes);
    for (RangeDecider *D : {&M.Priorities, &M.Weights})
      if (D->isWanted())
        D->enter(MF);
    return std::make_unique<Advisor>(MF, RA, Indexes, M, Planned);
  }

  void finish(const MachineFunction &MF, function_ref<float()> Score) {
    for (RangeDecider *D : {&M.Priorities, &M.Weights})
      D->finish(MF.getName(), Score);
  }

private:
  Model M;
  bool Failed = false;
};

} // namespace

void registerPriorityAdvisor() {
  initializeRegAllocAdvisors(*PassRegistry::getPassRegistry());
  replaceAnalysis<PriorityAnalysis<Desk>, Problem::RegallocPriority, Problem::RegallocWeight>();
}

} // namespace mlgokit
