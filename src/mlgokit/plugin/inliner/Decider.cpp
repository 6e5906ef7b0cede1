#include "inliner/Decider.h"

#include "majors/InlineAdvisor.h"
#include "shared/Choice.h"
#include "shared/Decided.h"
#include "shared/Exploration.h"
#include "shared/HotFunctions.h"

#include "llvm/IR/Module.h"

#include <cmath>

using namespace llvm;

namespace mlgokit {

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

Decider::Decider(Module &M, const Settings &S, Rule R, std::optional<Policy> P, std::vector<size_t> Sources,
                 std::optional<DecisionTable> Table, const DecisionTable::Entry *Tuned, std::unique_ptr<Logger> Log)
    : S(S), R(R), Hot(hotFunctions(M, S.KeepHot)), P(std::move(P)), Sources(std::move(Sources)),
      Table(std::move(Table)), Tuned(Tuned), Log(std::move(Log)) {
  const bool OnlyPolicy = this->P && !this->Log && !Tuned && !S.Temperature && !S.FlipProbability && Hot.empty();
  LooksEarly = OnlyPolicy && this->P->gateFeature() == "callee_is_discardable";
  if (this->Log || Tuned)
    Keys.emplace(M);
  if (OnlyPolicy)
    takeDecisions();
  else
    beginDecisions();
}

bool Decider::decide(CallBase &Call, ArrayRef<int64_t> Known, const BodyCounts &Caller, const BodyCounts &Callee,
                     function_ref<bool()> Heuristic) {
  if (R == Rule::Policy || Log)
    Observer.observe(Call, Caller, Callee, Extra);
  const uint64_t Site = Keys ? Keys->next(Call) : 0;
  const bool IsKept = isKept(*Call.getCaller());
  const std::optional<bool> ByTable = Tuned && !IsKept ? DecisionTable::decision(*Tuned, Site) : std::nullopt;
  // The heuristic's own decision costs one more cost analysis.
  const bool Wanted = ByTable ? Log && S.LogDefault : R == Rule::Default || Log || IsKept;
  const int64_t Default = Wanted ? Heuristic() : -1;

  double Preference = 0;
  const bool HasPolicy = R == Rule::Policy && !IsKept;
  // A recurrent policy remembers all that was asked, so that a table changes what it decides elsewhere no more than it
  // has to.
  if (HasPolicy && (!ByTable || P->isRecurrent())) {
    for (size_t I = 0; I < Sources.size(); ++I)
      Row[I] = double(Sources[I] < Known.size() ? Known[Sources[I]] : Extra[Sources[I] - Known.size()]);
    Preference = P->preference(Row, [&] { return Log ? Default != 0 : Heuristic(); });
  }
  if (ByTable) {
    Preference = *ByTable ? HUGE_VAL : -HUGE_VAL;
  } else if (!HasPolicy) {
    const bool Inline = R == Rule::Default || IsKept ? Default > 0 : R == Rule::Always;
    Preference = Inline ? HUGE_VAL : -HUGE_VAL;
  }
  const auto [Inline, LogProbability] =
      decideBinary(Preference, IsKept ? Spread() : Spread{S.Temperature, S.FlipProbability}, drawAt(S.Seed, Asked++));
  noteDecision(Inline);
  decided(*Call.getCalledFunction(), Inline);
  // What is no question to a policy or a search is not logged as one.
  if (Log && !IsKept)
    record(Call, Known, Site, ByTable.has_value(), Default, Inline, float(LogProbability));
  return Inline;
}

bool Decider::isKept(const Function &Caller) const {
  // A link merges what is compiled for size with what is not.
  return Hot.contains(Caller.getName()) ||
         (P && P->stage() == PolicyStage::Link && !S.AnyLevel && !Caller.hasOptSize());
}

int64_t Decider::idOf(const Function &F) {
  auto [Place, IsNew] = Ids.try_emplace(&F);
  if (IsNew)
    Place->second = functionId(F);
  return Place->second;
}

void Decider::record(CallBase &Call, ArrayRef<int64_t> Known, uint64_t Site, int64_t ByTable, int64_t Default,
                     int64_t Inline, float LogProbability) {
  size_t Column = 0;
  auto Write = [&](const auto &Value) { Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Value)); };
  Log->startObservation();
  for (const int64_t &Value : Known)
    Write(Value);
  for (const int64_t &Value : Extra)
    Write(Value);
  Write(idOf(*Call.getCaller()));
  Write(idOf(*Call.getCalledFunction()));
  Write(Site);
  Write(ByTable);
  Write(Default);
  Write(Inline);
  Write(LogProbability);
  Log->endObservation();
}

} // namespace mlgokit
