#include "inliner/Advisor.h"

#include "inliner/Decider.h"
#include "inliner/LlvmAdvisor.h"
#include "inliner/PolicyAdvisor.h"
#include "majors/InlineAdvisor.h"
#include "shared/Files.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace mlgokit {

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
    const PolicyStage Stage = Phase == ThinOrFullLTOPhase::None ? PolicyStage::Compile : PolicyStage::Link;
    if (Error E = loadPolicy(Problem::InlineSize, S, M, Stage).moveInto(P))
      return std::move(E);
    StringMap<size_t> Known;
    for (const TensorSpec &Spec : llvmFeatures())
      Known.try_emplace(Spec.name(), Known.size());
    for (const char *Name : FeatureNames)
      Known.try_emplace(Name, Known.size());
    if (Error E = findFeatures(*P, Known).moveInto(Sources))
      return std::move(E);
    // Copies merge and dead bodies vanish in the link by themselves, and what is imported is gone after it: what a
    // policy learned of final compilations does harm there, and the other way round. What it learned of another
    // processor is not known to hold.
    if ((P->stage() != Stage && !S.InLto) || !P->isFor(M)) {
      P.reset();
      Named = Rule::Default;
      LeftToLlvm = true;
    }
  }
  // What a compile step inlines, the link cannot undo. A policy for the link is taught to decide about every call.
  const bool Defers = (Table && Table->defers(Phase)) || (P && !S.InLto && isBeforeLink(Phase));
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
  if (*Log)
    (*Log)->switchContext("");
  auto Decides = std::make_unique<Decider>(M, S, Named.value_or(Rule::Policy), std::move(P), std::move(Sources),
                                           std::move(Table), Tuned, std::move(*Log));
  return (canStandForLlvms(M) ? makePolicyAdvisor : makeLlvmAdvisor)(M, MAM, FAM, Params, std::move(Decides));
}

} // namespace mlgokit
