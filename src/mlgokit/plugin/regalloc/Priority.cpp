// Priority: in which order live ranges get their registers.
//
// LLVM's own ML advisor fills three features, to which ours are added; its model is one of ours. A priority is an
// unsigned in the allocator but a float from a model, so the heuristic's own value does not go through the model.
#include "regalloc/Channel.h"
#include "regalloc/CurrentFunction.h"
#include "regalloc/RangeFeatures.h"
#include "regalloc/RegAlloc.h"
#include "regalloc/RegAllocAbi.h"
#include "regalloc/RegAllocAnalysis.h"
#include "shared/Exploration.h"
#include "shared/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

enum class Rule { Policy, Default, Random };

constexpr size_t Llvms = 3; // features of LLVM's, which come first

const std::vector<TensorSpec> &features() {
  static const std::vector<TensorSpec> Specs = [] {
    std::vector<TensorSpec> Made = {TensorSpec::createSpec<int64_t>("li_size", {1}),
                                    TensorSpec::createSpec<int64_t>("stage", {1}),
                                    TensorSpec::createSpec<float>("weight", {1})};
    for (StringRef Name : rangeFeatureNames())
      Made.push_back(TensorSpec::createSpec<float>(Name.str(), {1}));
    return Made;
  }();
  return Specs;
}

/// Holds what LLVM's advisor says of a live range, and decides for one module.
class Model final : public MLModelRunner {
public:
  explicit Model(LLVMContext &Ctx)
      : MLModelRunner(Ctx, MLModelRunner::Kind::NoOp, Llvms), Ours(rangeFeatureNames().size()) {
    setUpBufferForTensor(0, features()[0], &Size);
    setUpBufferForTensor(1, features()[1], &Stage);
    setUpBufferForTensor(2, features()[2], &Weight);
  }

  Error open() {
    Expected<Settings> Read = readSettings();
    if (!Read)
      return Read.takeError();
    S = std::move(*Read);
    const std::optional<Rule> Named = StringSwitch<std::optional<Rule>>(S.of(Problem::RegallocPriority).Policy)
                                          .Case(":default", Rule::Default)
                                          .Case(":random", Rule::Random)
                                          .Default(std::nullopt);
    const bool OnlyTuned =
        (S.hasAllocations() || hasTrials(Stage::Registers)) && !S.hasPolicy(Problem::RegallocPriority);
    R = Named.value_or(OnlyTuned ? Rule::Default : Rule::Policy);
    if (S.FlipProbability > 0 && !OnlyTuned)
      return createStringError(inconvertibleErrorCode(),
                               "expected no flip probability with a policy for " +
                                   nameOf(Problem::RegallocPriority).str() +
                                   ", found one; a number has no opposite, give a temperature");
    if (R == Rule::Policy)
      if (Error E = decideBy(loadPolicy(Problem::RegallocPriority, S)))
        return E;
    Draws.emplace(nameOf(Problem::RegallocPriority), S.Seed);
    if (Error E = refuseOptions({"regalloc-enable-priority-advisor", "regalloc-priority-interactive-channel-base"},
                                policySettingOf(Problem::RegallocPriority)))
      return E;
    std::vector<TensorSpec> Columns = features();
    Columns.push_back(TensorSpec::createSpec<int64_t>("priority_default", {1}));
    Columns.push_back(TensorSpec::createSpec<float>("priority", {1}));
    Columns.push_back(TensorSpec::createSpec<float>("log_probability", {1}));
    Expected<std::unique_ptr<Logger>> Opened = openLog(Problem::RegallocPriority, S, Columns);
    if (!Opened)
      return Opened.takeError();
    Log = std::move(*Opened);
    SeesOurs |= bool(Log);
    return Error::success();
  }

  /// Lets a policy decide from now on.
  Error decideBy(Expected<Policy> Loaded) {
    if (!Loaded)
      return Loaded.takeError();
    StringMap<size_t> Known;
    for (const TensorSpec &Spec : features())
      Known.try_emplace(Spec.name(), Known.size());
    Expected<std::vector<size_t>> Found = findFeatures(*Loaded, Known);
    if (!Found)
      return Found.takeError();
    R = Rule::Policy;
    P.emplace(std::move(*Loaded));
    Sources = std::move(*Found);
    const auto Gate = find(P->features(), P->gateFeature());
    GateAt = Gate == P->features().end() ? std::nullopt : std::optional(size_t(Gate - P->features().begin()));
    SeesOurs = Log || any_of(Sources, [](size_t Source) { return Source >= Llvms; });
    return Error::success();
  }

  void enter(StringRef Name) {
    if (Function == Name)
      return;
    Function = Name.str();
    Draws->enter(Name);
  }

  bool followsHeuristic() const { return R == Rule::Default; }

  /// Whether the heuristic alone is wanted, and nobody reads how it came to its values.
  bool standsAside() const { return R == Rule::Default && !Log; }

  /// Where features of ours go before a decision; nowhere if nobody sees them.
  MutableArrayRef<float> ours() { return SeesOurs ? MutableArrayRef<float>(Ours) : MutableArrayRef<float>(); }

  /// The priority of the live range in the buffers. \p AskHeuristic gives the heuristic's own.
  unsigned decide(function_ref<unsigned()> AskHeuristic);

private:
  void *evaluateUntyped() override { return &Unused; }

  int64_t Size = 0, Stage = 0;
  float Weight = 0, Unused = 0;
  std::vector<float> Ours;
  bool SeesOurs = false;
  Settings S;
  Rule R = Rule::Default;
  std::optional<Policy> P;
  std::vector<size_t> Sources;
  std::optional<size_t> GateAt; // which of these the policy's gate goes by
  std::unique_ptr<Logger> Log;
  std::string Function;
  std::optional<FunctionDraws> Draws;
};

unsigned Model::decide(function_ref<unsigned()> AskHeuristic) {
  SmallVector<double, 32> Row;
  const double First[] = {double(Size), double(Stage), double(Weight)};
  for (size_t Source : Sources)
    Row.push_back(Source < Llvms ? First[Source] : double(Ours[Source - Llvms]));
  const bool ByHeuristic = R == Rule::Default || (GateAt && !P->believes(Row[*GateAt] != 0));
  std::optional<unsigned> Default;
  if (ByHeuristic || Log)
    Default = AskHeuristic();
  const Draw D = Draws->next();
  mlgokit::Priority Decided;
  if (ByHeuristic)
    // The nearest float below 2**32, as the log has one; the allocator gets the exact value.
    Decided = {float(std::min(double(*Default), 4294967040.0)), 0};
  else
    Decided = R == Rule::Random ? anyPriority(D) : drawPriority(P->unit(Row), {S.Temperature, 0}, D);
  if (Log) {
    if (Log->currentContext() != Function)
      Log->switchContext(Function);
    const int64_t Exact = *Default;
    size_t Column = 0;
    auto Write = [&](const auto &Now) { Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Now)); };
    Log->startObservation();
    Write(Size);
    Write(Stage);
    Write(Weight);
    for (float Value : Ours)
      Write(Value);
    Write(Exact);
    Write(Decided.Value);
    Write(float(Decided.LogProbability));
    Log->endObservation();
  }
  return ByHeuristic ? *Default : unsigned(Decided.Value);
}

/// Lets LLVM's ML advisor fill the buffers, then asks the model.
class Advisor final : public MLPriorityAdvisor {
public:
  Advisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes, Model &M, FunctionPlan *P)
      : MLPriorityAdvisor(MF, RA, Indexes, &M), MF(MF), Indexes(*Indexes), M(M), P(P) {
    M.enter(MF.getName());
  }

private:
  unsigned getPriority(const LiveInterval &Range) const override {
    if (!P)
      return decide(Range);
    const std::optional<PlannedOverride> Wanted = P->Priorities.next(P->Shape.numberOf(Range.reg()));
    if (P->hasTriedPolicy())
      return decide(Range);
    const unsigned Default = getDefaultAdvisor().getPriority(Range);
    if (Wanted || !P->ByRule || M.followsHeuristic())
      return P->priority(Default, Wanted);
    return P->priorityNear(decide(Range), Default);
  }

  unsigned decide(const LiveInterval &Range) const {
    const auto Heuristic = [&] { return getDefaultAdvisor().getPriority(Range); };
    getPriorityImpl(Range);
    if (MutableArrayRef<float> Ours = M.ours(); !Ours.empty())
      observeRange(MF, Indexes, Range, Heuristic(), Ours);
    return M.decide(Heuristic);
  }

  const MachineFunction &MF;
  const SlotIndexes &Indexes;
  Model &M;
  FunctionPlan *const P; // it lives as long as the function is in the allocator
};

/// What the plugin keeps for the code generation of one module.
class Desk {
public:
  explicit Desk(Module &Of) : M(Of.getContext()) {
    Error E = M.open();
    Failed = bool(E);
    if (Failed)
      Of.getContext().emitError("mlgokit: " + toString(std::move(E)));
  }

  std::unique_ptr<RegAllocPriorityAdvisor> advise(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes) {
    FunctionPlan *const Planned = planOf(MF);
    const bool StandsAside =
        Planned ? !Planned->ByRule && !Planned->hasTriedPolicy() && Planned->Priorities.isIdle() : M.standsAside();
    // Only a copy has one, and it ends with this function.
    if (Planned && Planned->hasTriedPolicy())
      if (Error E = M.decideBy(parsePolicy(Problem::RegallocPriority, Planned->TriedPolicy, "of a trial")))
        report_fatal_error(std::move(E));
    if (Failed || StandsAside)
      return std::make_unique<DefaultPriorityAdvisor>(MF, RA, Indexes);
    return std::make_unique<Advisor>(MF, RA, Indexes, M, Planned);
  }

private:
  Model M;
  bool Failed = false;
};

#if LLVM_VERSION_MAJOR >= 22

class DeskProvider final : public RegAllocPriorityAdvisorProvider {
public:
  explicit DeskProvider(Module &M) : RegAllocPriorityAdvisorProvider(AdvisorMode::Release), D(M) {}
  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      SlotIndexes &Indexes) override {
    return D.advise(MF, RA, &Indexes);
  }

private:
  Desk D;
};

class Analysis final
    : public ModuleAnalysis<RegAllocPriorityAdvisorAnalysisLegacy, DeskProvider, SlotIndexesWrapperPass> {};

#else

class Analysis final : public ModuleAnalysis<RegAllocPriorityAdvisorAnalysis, Desk, SlotIndexesWrapperPass> {
  std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    return Made->advise(MF, RA, &getAnalysis<SlotIndexesWrapperPass>().getSI());
  }
};

#endif

} // namespace

void registerPriorityAdvisor() {
  PassRegistry &Registry = *PassRegistry::getPassRegistry();
#if LLVM_VERSION_MAJOR >= 22
  initializeRegAllocPriorityAdvisorAnalysisLegacyPass(Registry);
#else
  initializeRegAllocPriorityAdvisorAnalysisPass(Registry);
#endif
  replaceAnalysis<Problem::RegallocPriority, Analysis>();
}

} // namespace mlgokit
