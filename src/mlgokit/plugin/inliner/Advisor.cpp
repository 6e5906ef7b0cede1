#include "inliner/Advisor.h"

#include "inliner/DecisionTable.h"
#include "inliner/Features.h"
#include "inliner/Heuristic.h"
#include "inliner/PolicyAdvisor.h"
#include "inliner/SiteKeys.h"
#include "shared/Decided.h"
#include "shared/Exploration.h"
#include "shared/Files.h"
#include "shared/HotFunctions.h"
#include "shared/Policy.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/MLInlineAdvisor.h"
#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/Module.h"

#include <cmath>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

enum class Rule { Policy, Default, Never, Always };

/// The features LLVM's advisor fills, in its order.
const std::vector<TensorSpec> &llvmFeatures() {
#if LLVM_VERSION_MAJOR >= 22
  return MLInlineAdvisor::getInitialFeatureMap();
#else
  return FeatureMap;
#endif
}

/// Holds the feature buffer that MLInlineAdvisor writes into, and the answer that it reads.
class PolicyModelRunner final : public MLModelRunner {
public:
  PolicyModelRunner(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs)
      : MLModelRunner(Ctx, MLModelRunner::Kind::NoOp, Inputs.size()), Values(Inputs.size()) {
    for (size_t I = 0; I < Inputs.size(); ++I)
      setUpBufferForTensor(I, Inputs[I], &Values[I]);
  }
  std::vector<int64_t> Values;
  int64_t Answer = 0;

private:
  void *evaluateUntyped() override { return &Answer; }
};

/// Advice under which calls that come with an inlined body know through which call they came.
class PathAdvice final : public MLInlineAdvice {
public:
  PathAdvice(MLInlineAdvisor *Advisor, CallBase &Call, OptimizationRemarkEmitter &ORE, bool Inline, SiteKeys &Keys)
      : MLInlineAdvice(Advisor, Call, ORE, Inline), Keys(Keys) {
    if (Inline)
      Keys.enter(Call);
  }

private:
  void recordInliningImpl() override {
    Keys.leave(/*Inlined=*/true, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    Keys.leave(/*Inlined=*/true, /*CalleeIsThere=*/false);
    MLInlineAdvice::recordInliningWithCalleeDeletedImpl();
  }
  void recordUnsuccessfulInliningImpl(const InlineResult &Result) override {
    Keys.leave(/*Inlined=*/false, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordUnsuccessfulInliningImpl(Result);
  }
  void recordUnattemptedInliningImpl() override {
    Keys.leave(/*Inlined=*/false, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordUnattemptedInliningImpl();
  }

  SiteKeys &Keys;
};

class Advisor final : public MLInlineAdvisor {
public:
  Advisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM, const InlineParams &Params,
          const Settings &S, Rule R, std::optional<Policy> P, std::vector<size_t> Sources,
          std::optional<DecisionTable> Table, const DecisionTable::Entry *Tuned, std::unique_ptr<Logger> Log)
      : MLInlineAdvisor(
            M, MAM,
#if LLVM_VERSION_MAJOR >= 22
            [&M](const std::vector<TensorSpec> &Inputs) {
              return std::make_unique<PolicyModelRunner>(M.getContext(), Inputs);
            },
#else
            std::make_unique<PolicyModelRunner>(M.getContext(), FeatureMap),
#endif
            [&FAM, Params](CallBase &Call) { return heuristicInlines(Call, FAM, Params); }),
        S(S), R(R), Hot(hotFunctions(M, S.KeepHot)), P(std::move(P)), Sources(std::move(Sources)),
        Table(std::move(Table)), Tuned(Tuned), Log(std::move(Log)) {
    if (this->Log || Tuned)
      Keys.emplace(M);
    beginDecisions();
  }

  void onPassEntry(LazyCallGraph::SCC *C) override {
    Observer.forget();
    MLInlineAdvisor::onPassEntry(C);
  }

protected:
  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &Call, OptimizationRemarkEmitter &ORE) override {
    auto &Runner = static_cast<PolicyModelRunner &>(*ModelRunner);
    Function &Callee = *Call.getCalledFunction();
    if (R == Rule::Policy || Log)
      Observer.observe(Call, BodyCounts::of(getCachedFPI(*Call.getCaller())), BodyCounts::of(getCachedFPI(Callee)),
                       Extra);
    const uint64_t Site = Keys ? Keys->next(Call) : 0;
    const bool IsKept = Hot.contains(Call.getCaller()->getName());
    const std::optional<bool> Decided = Tuned && !IsKept ? DecisionTable::decision(*Tuned, Site) : std::nullopt;
    // The heuristic's own decision costs one more cost analysis, so it is only taken when somebody reads it.
    const bool Wanted = Decided ? Log && S.LogDefault : R == Rule::Default || Log || IsKept;
    const int64_t Default = Wanted ? GetDefaultAdvice(Call) : -1;

    double Preference = 0;
    if (Decided) {
      Preference = *Decided ? HUGE_VAL : -HUGE_VAL;
    } else if (R == Rule::Policy && !IsKept) {
      for (size_t I = 0; I < Sources.size(); ++I)
        Row[I] = double(Sources[I] < Runner.Values.size() ? Runner.Values[Sources[I]]
                                                          : Extra[Sources[I] - Runner.Values.size()]);
      Preference = P->preference(Row, [&] { return Log ? Default != 0 : GetDefaultAdvice(Call); });
    } else {
      const bool Inline = R == Rule::Default || IsKept ? Default > 0 : R == Rule::Always;
      Preference = Inline ? HUGE_VAL : -HUGE_VAL;
    }
    const auto [Inline, LogProbability] =
        decideBinary(Preference, IsKept ? Spread() : Spread{S.Temperature, S.FlipProbability}, drawAt(S.Seed, Asked++));
    Runner.Answer = Inline;
    noteDecision(Inline);
    Observer.decided(Callee, Inline);
    // What is no question to a policy or a search is not logged as one.
    if (Log && !IsKept)
      record(Call, Runner, Site, Decided.has_value(), Default, float(LogProbability));
    return advice(Call, ORE, Inline);
  }

  std::unique_ptr<MLInlineAdvice> getMandatoryAdviceImpl(CallBase &Call) override {
    return advice(Call, getCallerORE(Call), true);
  }

private:
  std::unique_ptr<MLInlineAdvice> advice(CallBase &Call, OptimizationRemarkEmitter &ORE, bool Inline) {
    if (Keys)
      return std::make_unique<PathAdvice>(this, Call, ORE, Inline, *Keys);
    return std::make_unique<MLInlineAdvice>(this, Call, ORE, Inline);
  }

  void record(CallBase &Call, const PolicyModelRunner &Runner, uint64_t Site, int64_t ByTable, int64_t Default,
              float LogProbability) {
    size_t Column = 0;
    auto Write = [&](const auto &Value) { Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Value)); };
    Log->startObservation();
    for (const int64_t &Value : Runner.Values)
      Write(Value);
    for (const int64_t &Value : Extra)
      Write(Value);
    Write(functionId(*Call.getCaller()));
    Write(functionId(*Call.getCalledFunction()));
    Write(Site);
    Write(ByTable);
    Write(Default);
    Write(Runner.Answer);
    Write(LogProbability);
    Log->endObservation();
  }

  const Settings S;
  const Rule R;
  const StringSet<> Hot; // functions that are left to LLVM, the calls in them and what is allocated there
  std::optional<Policy> P;
  const std::vector<size_t> Sources; // where each of the policy's features is: LLVM's first, then the plugin's
  std::optional<DecisionTable> Table;
  const DecisionTable::Entry *Tuned; // the module's part of it
  std::optional<SiteKeys> Keys;
  std::unique_ptr<Logger> Log;
  uint64_t Asked = 0;
  CallSiteObserver Observer;
  FeatureValues Extra{};
  std::vector<double> Row = std::vector<double>(Sources.size());
};

std::vector<TensorSpec> logColumns() {
  std::vector<TensorSpec> Columns = llvmFeatures();
  for (const char *Name : FeatureNames)
    Columns.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  for (const char *Name : {"caller_id", "callee_id", "site", "decided_by_table"})
    Columns.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  Columns.push_back(DefaultDecisionSpec);
  Columns.push_back(InlineDecisionSpec);
  Columns.push_back(TensorSpec::createSpec<float>("log_probability", {1}));
  return Columns;
}

} // namespace

Expected<std::unique_ptr<InlineAdvisor>> createAdvisor(Module &M, ModuleAnalysisManager &MAM,
                                                       FunctionAnalysisManager &FAM, const InlineParams &Params,
                                                       const Settings &S, ThinOrFullLTOPhase Phase, bool AtLink,
                                                       std::optional<DecisionTable> Table) {
  std::optional<Rule> Named = StringSwitch<std::optional<Rule>>(S.of(Problem::InlineSize).Policy)
                                  .Case(":default", Rule::Default)
                                  .Case(":never", Rule::Never)
                                  .Case(":always", Rule::Always)
                                  .Default(std::nullopt);
  if (!S.hasPolicy(Problem::InlineSize) && S.hasDecisions())
    Named = Rule::Default;
  std::optional<Policy> P;
  std::vector<size_t> Sources;
  bool LeftToLlvm = false;
  if (!Named) {
    Expected<Policy> Loaded = loadPolicy(Problem::InlineSize, S);
    if (!Loaded)
      return Loaded.takeError();
    P.emplace(std::move(*Loaded));
    StringMap<size_t> Known;
    for (const TensorSpec &Spec : llvmFeatures())
      Known.try_emplace(Spec.name(), Known.size());
    for (const char *Name : FeatureNames)
      Known.try_emplace(Name, Known.size());
    Expected<std::vector<size_t>> Found = findFeatures(*P, Known);
    if (!Found)
      return Found.takeError();
    Sources = std::move(*Found);
    // Copies merge and dead bodies vanish in the link by themselves, and what is imported is gone after it: what a
    // policy learned of final compilations does harm there. What it learned of another processor is not known to hold.
    if ((Phase != ThinOrFullLTOPhase::None && !S.InLto) || !P->isFor(M)) {
      P.reset();
      Named = Rule::Default;
      LeftToLlvm = true;
    }
  }
  const bool Defers = Table && Table->defers(Phase);
  if (Defers) {
    P.reset();
    Named = Rule::Never;
    LeftToLlvm = false;
  }
  const DecisionTable::Entry *Tuned = Table && !Defers ? Table->find(M, AtLink) : nullptr;
  // Without a policy to fall back on, what was not tuned stays as LLVM would have it, and is not even looked at.
  if (Table && !Defers && (Tuned ? Tuned->Plain : !S.hasPolicy(Problem::InlineSize)))
    return nullptr;
  const bool Explores = S.Temperature != 0 || S.FlipProbability != 0;
  if (LeftToLlvm && !Tuned && !Explores && S.of(Problem::InlineSize).Log.empty())
    return nullptr;
  Expected<std::unique_ptr<Logger>> Log = openLog(Problem::InlineSize, S, logColumns());
  if (!Log)
    return Log.takeError();
  const bool OnlyDecides = P && !*Log && !Tuned && !S.Temperature && !S.FlipProbability && !S.KeepHot;
  if (OnlyDecides && canOnlyDecide(M, Sources, llvmFeatures().size()))
    return makePolicyAdvisor(M, MAM, FAM, Params, std::move(*P), std::move(Sources));
  if (*Log)
    (*Log)->switchContext("");
  return std::make_unique<Advisor>(M, MAM, FAM, Params, S, Named.value_or(Rule::Policy), std::move(P),
                                   std::move(Sources), std::move(Table), Tuned, std::move(*Log));
}

} // namespace mlgokit
