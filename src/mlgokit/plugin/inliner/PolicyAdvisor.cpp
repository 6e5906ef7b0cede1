#include "inliner/PolicyAdvisor.h"

#include "inliner/BodyCounts.h"
#include "inliner/CostFeatures.h"
#include "inliner/Features.h"
#include "inliner/FunctionLevels.h"
#include "inliner/Heuristic.h"
#include "majors/InlineAdvisor.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/CommandLine.h"

#include <limits>
#include <optional>
#include <tuple>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr char GrowthOption[] = "ml-advisor-size-increase-threshold";
constexpr size_t LlvmFeatureCount = size_t(FeatureIndex::is_caller_avail_external) + 1;

/// By how much a module may grow until nothing more is inlined, as LLVM's advisor has it.
float mostGrowth() {
  return static_cast<cl::opt<float> *>(cl::getRegisteredOptions().lookup(GrowthOption))->getValue();
}

class PolicyAdvisor final : public InlineAdvisor {
public:
  PolicyAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM, const InlineParams &Params,
                std::unique_ptr<Decider> Decides)
      : InlineAdvisor(M, FAM), Params(Params), Decides(std::move(Decides)),
        Graph(MAM.getResult<LazyCallGraphAnalysis>(M)), Levels(Graph), Costs(M, FAM),
        Growth(this->Decides->mayGrow() ? std::numeric_limits<float>::infinity() : mostGrowth()) {
    FAM.registerPass([] { return BodyCountsAnalysis(); });
    for (Function &F : M) {
      if (F.isDeclaration())
        continue;
      const BodyCounts Counted = FAM.getResult<BodyCountsAnalysis>(F);
      Size += Counted.Instructions;
      if (Levels.knows(F)) {
        ++Nodes;
        Edges += Counted.DefinedCalls;
      }
    }
    FirstSize = Size;
    AsksEstimate = this->Decides->reads(FeatureIndex::cost_estimate);
  }

  void onPassEntry(LazyCallGraph::SCC *C) override;
  void onPassExit(LazyCallGraph::SCC *C) override;
  void inlined(Function &Caller, Function &Callee, const BodyCounts &OfCallee, bool CalleeIsGone);
  SiteKeys *keys() { return Decides->keys(); }

protected:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &Call) override;
  std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &Call, bool Inline) override;

private:
  const BodyCounts &counts(Function &F);
  void settle();
  bool isReachable(const CallBase &Call);
  MandatoryInliningKind kindOf(CallBase &Call, OptimizationRemarkEmitter &ORE);
  bool heuristicDecidesAnyway(CallBase &Call, OptimizationRemarkEmitter &ORE);
  bool decide(CallBase &Call, const InlineCostFeatures &Cost, int Estimate);
  std::unique_ptr<InlineAdvice> untracked(CallBase &Call, bool Inline);
  std::unique_ptr<InlineAdvice> tracked(CallBase &Call, bool Inline);

  const InlineParams Params;
  std::unique_ptr<Decider> Decides;
  LazyCallGraph &Graph;
  FunctionLevels Levels;
  CostFeatures Costs;
  const float Growth;
  bool AsksEstimate = false, OneCaller = false;
  bool Stopped = false; // the module has grown too much

  int64_t FirstSize = 0, Size = 0; // instructions of all functions
  int64_t Nodes = 0, Edges = 0;    // functions, and calls of them, as far as LLVM's advisor knows of them
  int64_t EdgesOfLast = 0;         // those of LastNodes, when they were left
  DenseMap<const Function *, BodyCounts> Counts;
  SmallPtrSet<LazyCallGraph::Node *, 4> LastNodes; // of the last component, as long as they live
  Function *Changed = nullptr;                     // what was inlined into since it was counted
  CallerCounter Counter;
  DenseSet<std::tuple<AttributeSet, AttributeSet, AttributeSet>> Optional; // of caller, callee and call

  std::array<int64_t, LlvmFeatureCount> Known{};
};

/// Advice that tells the advisor when it was followed, and keys of call sites through which call others came.
class TrackedAdvice final : public InlineAdvice {
public:
  TrackedAdvice(PolicyAdvisor &Advisor, CallBase &Call, OptimizationRemarkEmitter &ORE, bool Inline,
                const BodyCounts &OfCallee)
      : InlineAdvice(&Advisor, Call, ORE, Inline), Owner(Advisor), OfCallee(OfCallee) {
    if (SiteKeys *Keys = Owner.keys(); Keys && Inline)
      Keys->enter(Call);
  }

private:
  void recordInliningImpl() override {
    leave(/*Inlined=*/true, /*CalleeIsThere=*/true);
    Owner.inlined(*Caller, *Callee, OfCallee, /*CalleeIsGone=*/false);
  }
  void recordInliningWithCalleeDeletedImpl() override {
    leave(/*Inlined=*/true, /*CalleeIsThere=*/false);
    Owner.inlined(*Caller, *Callee, OfCallee, /*CalleeIsGone=*/true);
  }
  void recordUnsuccessfulInliningImpl(const InlineResult &) override { leave(false, true); }
  void recordUnattemptedInliningImpl() override { leave(false, true); }

  void leave(bool Inlined, bool CalleeIsThere) {
    if (SiteKeys *Keys = Owner.keys())
      Keys->leave(Inlined, CalleeIsThere);
  }

  PolicyAdvisor &Owner;
  const BodyCounts OfCallee; // before
};

std::unique_ptr<InlineAdvice> PolicyAdvisor::untracked(CallBase &Call, bool Inline) {
  return std::make_unique<InlineAdvice>(this, Call, getCallerORE(Call), Inline);
}

std::unique_ptr<InlineAdvice> PolicyAdvisor::tracked(CallBase &Call, bool Inline) {
  counts(*Call.getCaller());
  const BodyCounts OfCallee = counts(*Call.getCalledFunction());
  if (Inline && Counter.knows(*Call.getCaller()))
    Counter.beforeInlining(Call);
  return std::make_unique<TrackedAdvice>(*this, Call, getCallerORE(Call), Inline, OfCallee);
}

/// Counts are taken where LLVM's advisor takes its own, since the uses among them are those of that moment.
const BodyCounts &PolicyAdvisor::counts(Function &F) {
  auto [Place, IsNew] = Counts.try_emplace(&F);
  if (IsNew) {
    const BodyCounts Found = FAM.getResult<BodyCountsAnalysis>(F);
    Place->second = Found;
  }
  return Place->second;
}

void PolicyAdvisor::onPassEntry(LazyCallGraph::SCC *C) {
  Decides->enterComponent();
  OneCaller = C && C->size() == 1;
  if (!C || Stopped)
    return;
  Counts.clear();
  // What was made since the last component was left is beside it.
  SmallVector<LazyCallGraph::Node *, 4> Left(LastNodes.begin(), LastNodes.end());
  while (!Left.empty()) {
    LazyCallGraph::Node &Node = *Left.pop_back_val();
    Edges += counts(Node.getFunction()).DefinedCalls;
    for (LazyCallGraph::Edge &Edge : *Node)
      if (!Levels.knows(Edge.getFunction())) {
        ++Nodes;
        Levels.add(Edge.getFunction(), Node.getFunction());
        Left.push_back(&Edge.getNode());
      }
  }
  Edges -= EdgesOfLast;
  EdgesOfLast = 0;
  LastNodes.clear();
  for (LazyCallGraph::Node &Node : *C)
    LastNodes.insert(&Node);
}

void PolicyAdvisor::onPassExit(LazyCallGraph::SCC *C) {
  settle();
  Counter.forget();
  Counts.clear();
  if (!C || Stopped)
    return;
  for (LazyCallGraph::Node &Node : *C)
    LastNodes.insert(&Node);
  EdgesOfLast = 0;
  for (LazyCallGraph::Node *Node : LastNodes)
    EdgesOfLast += counts(Node->getFunction()).DefinedCalls;
  Counts.clear();
}

void PolicyAdvisor::inlined(Function &Caller, Function &Callee, const BodyCounts &OfCallee, bool CalleeIsGone) {
  Changed = &Caller;
  // LLVM takes them now. From LLVM 22 on, the body of a callee that dies may hold a use of its caller for longer.
  Counts[&Caller].Uses = countUses(Caller);
  if (!CalleeIsGone)
    return;
  Size -= OfCallee.Instructions;
  Edges -= OfCallee.DefinedCalls;
  --Nodes;
  LastNodes.erase(Graph.lookup(Callee));
}

/// Counts anew what was inlined into. Between two questions no more than one call is inlined.
void PolicyAdvisor::settle() {
  if (!Changed)
    return;
  Function &F = *Changed;
  Changed = nullptr;
  PreservedAnalyses Kept = PreservedAnalyses::all();
  Kept.abandon<BodyCountsAnalysis>();
  Kept.abandon<CostTraitsAnalysis>();
  FAM.invalidate(F, Kept);
  BodyCounts Now = Counter.afterInlining(F);
  BodyCounts &Then = Counts[&F];
  Now.Uses = Then.Uses;
  Size += Now.Instructions - Then.Instructions;
  Edges += Now.DefinedCalls - Then.DefinedCalls;
  Then = Now;
  Stopped |= float(Size) > Growth * float(FirstSize);
}

bool PolicyAdvisor::isReachable(const CallBase &Call) {
  Function &Caller = *const_cast<CallBase &>(Call).getCaller();
  if (Counter.knows(Caller))
    return Counter.reaches(*Call.getParent());
  return FAM.getResult<DominatorTreeAnalysis>(Caller).isReachableFromEntry(Call.getParent());
}

/// LLVM's answer, which looks up dozens of attributes by name. That inlining is neither demanded nor forbidden, it says
/// by attributes alone, if the callee is final, nothing is passed by value, both functions are for the same processor,
/// and neither has a mode of it, such as streaming: then AArch64 looks into the callee.
InlineAdvisor::MandatoryInliningKind PolicyAdvisor::kindOf(CallBase &Call, OptimizationRemarkEmitter &ORE) {
  const Function &Caller = *Call.getCaller(), &Callee = *Call.getCalledFunction();
  const AttributeSet OfCaller = Caller.getAttributes().getFnAttrs(), OfCallee = Callee.getAttributes().getFnAttrs();
  const auto Key = std::make_tuple(OfCaller, OfCallee, Call.getAttributes().getFnAttrs());
  const bool ByAttributes = !Callee.isInterposable() && !Call.hasByValArgument() &&
                            !Callee.getAttributes().hasAttrSomewhere(Attribute::ByVal);
  if (ByAttributes && Optional.contains(Key))
    return MandatoryInliningKind::NotMandatory;
  const MandatoryInliningKind Kind = getMandatoryKind(Call, FAM, ORE);
  auto IsSame = [&](StringRef Name) { return OfCaller.getAttribute(Name) == OfCallee.getAttribute(Name); };
  auto HasMode = [](AttributeSet Of) {
    return any_of(Of, [](Attribute A) { return A.isStringAttribute() && A.getKindAsString().starts_with("aarch64_"); });
  };
  if (ByAttributes && Kind == MandatoryInliningKind::NotMandatory && IsSame("target-cpu") &&
      IsSame("target-features") && !HasMode(OfCaller) && !HasMode(OfCallee))
    Optional.insert(Key);
  return Kind;
}

/// Whether the gate leaves the call to LLVM's heuristic whatever the policy says, so that none of the features is
/// needed: an analysis of the whole callee.
bool PolicyAdvisor::heuristicDecidesAnyway(CallBase &Call, OptimizationRemarkEmitter &ORE) {
  Function &Caller = *Call.getCaller(), &Callee = *Call.getCalledFunction();
  // LLVM notes sizes of a callee that cannot be inlined at all later than this path does. In a component of several
  // functions the callee may be the next caller, and its features would differ.
  return OneCaller && &Caller != &Callee && Decides->leavesToHeuristic(isDiscardable(Callee)) &&
         kindOf(Call, ORE) == MandatoryInliningKind::NotMandatory;
}

std::unique_ptr<InlineAdvice> PolicyAdvisor::getMandatoryAdvice(CallBase &Call, bool Inline) {
  settle();
  return isReachable(Call) && Inline && !Stopped ? tracked(Call, true) : untracked(Call, isReachable(Call) && Inline);
}

std::unique_ptr<InlineAdvice> PolicyAdvisor::getAdviceImpl(CallBase &Call) {
  settle();
  if (!isReachable(Call))
    return untracked(Call, false);
  Function &Caller = *Call.getCaller(), &Callee = *Call.getCalledFunction();
  OptimizationRemarkEmitter &ORE = getCallerORE(Call);
  if (!Stopped && heuristicDecidesAnyway(Call, ORE)) {
    const bool Inline = heuristicInlines(Call, FAM, Params);
    Decides->decided(Callee, Inline);
    return tracked(Call, Inline);
  }
  const MandatoryInliningKind Kind = kindOf(Call, ORE);
  if (Kind == MandatoryInliningKind::Never || &Caller == &Callee)
    return untracked(Call, false);
  const bool Mandatory = Kind == MandatoryInliningKind::Always;
  if (Stopped)
    return untracked(Call, Mandatory);
  const std::optional<InlineCostFeatures> Cost = Costs.features(Call);
  const std::optional<int> Estimate = Cost && AsksEstimate && !Mandatory ? Costs.estimate(Call, *Cost) : 0;
  if (!Cost || !Estimate)
    return untracked(Call, false);
  if (Mandatory)
    return tracked(Call, true);
  return tracked(Call, decide(Call, *Cost, *Estimate));
}

bool PolicyAdvisor::decide(CallBase &Call, const InlineCostFeatures &Cost, int Estimate) {
  const Function &Caller = *Call.getCaller(), &Callee = *Call.getCalledFunction();
  counts(*Call.getCaller());
  const BodyCounts OfCallee = counts(*Call.getCalledFunction());
  const BodyCounts &OfCaller = counts(*Call.getCaller());
  auto Set = [&](FeatureIndex Index, int64_t Value) { Known[size_t(Index)] = Value; };
  std::copy(Cost.begin(), Cost.end(), Known.begin());
  Set(FeatureIndex::cost_estimate, Estimate);
  Set(FeatureIndex::callee_basic_block_count, OfCallee.Blocks);
  Set(FeatureIndex::callsite_height, Levels.of(Caller));
  Set(FeatureIndex::node_count, Nodes);
  Set(FeatureIndex::edge_count, Edges);
  Set(FeatureIndex::nr_ctant_params, count_if(Call.args(), [](const Use &A) { return isa<Constant>(A); }));
  Set(FeatureIndex::caller_users, OfCaller.Uses);
  Set(FeatureIndex::caller_conditionally_executed_blocks, OfCaller.ConditionalBlocks);
  Set(FeatureIndex::caller_basic_block_count, OfCaller.Blocks);
  Set(FeatureIndex::callee_conditionally_executed_blocks, OfCallee.ConditionalBlocks);
  Set(FeatureIndex::callee_users, OfCallee.Uses);
  Set(FeatureIndex::is_callee_avail_external, Callee.hasAvailableExternallyLinkage());
  Set(FeatureIndex::is_caller_avail_external, Caller.hasAvailableExternallyLinkage());
  return Decides->decide(Call, Known, OfCaller, OfCallee, [&] {
    const std::optional<bool> Follows = AsksEstimate ? Costs.heuristic(Call, Estimate, Params) : std::nullopt;
    return Follows ? *Follows : heuristicInlines(Call, FAM, Params);
  });
}

} // namespace

bool canStandForLlvms(const Module &M) {
  // Remarks list all features of LLVM's advisor.
  const LLVMContext &Context = M.getContext();
  const DiagnosticHandler *Handler = Context.getDiagHandlerPtr();
  if (const_cast<LLVMContext &>(Context).getLLVMRemarkStreamer() || (Handler && Handler->isAnyRemarkEnabled()))
    return false;
  // Options that only LLVM's advisor obeys.
  if (isGiven("ml-inliner-skip-policy") || isGiven("ml-advisor-keep-fpi-cache"))
    return false;
  return cl::getRegisteredOptions().count(GrowthOption) && llvmFeatures().size() == LlvmFeatureCount;
}

std::unique_ptr<InlineAdvisor> makePolicyAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                                                 const InlineParams &Params, std::unique_ptr<Decider> Decides) {
  return std::make_unique<PolicyAdvisor>(M, MAM, FAM, Params, std::move(Decides));
}

} // namespace mlgokit
