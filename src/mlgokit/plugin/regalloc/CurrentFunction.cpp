#include "regalloc/CurrentFunction.h"

#include "trials/TrialCopy.h"
#include "trials/Trials.h"

#include <memory>

using namespace llvm;

namespace mlgokit {

namespace {

struct Entered {
  const MachineFunction *Function = nullptr;
  std::unique_ptr<FunctionPlan> Plan;
};
thread_local Entered Current;

} // namespace

FunctionPlan *enterFunction(MachineFunction &MF, const OverrideTable *Table, bool NumbersQuestions) {
  const Function &F = MF.getFunction();
  comeTo(F);
  Current.Function = &MF;
  Current.Plan.reset();
  const bool HasTrials = hasTrials(Stage::Registers);
  if (!Table && !HasTrials)
    return nullptr;
  FunctionShape Shape(MF);
  const auto Begin = [&](const Overrides &Base, const Trial &T) {
    Current.Plan.reset(new FunctionPlan{Shape, OverridePlan(Base.Evictions, T.EvictionFlips, T.Seed),
                                        OverridePlan(Base.Priorities, T.PriorityFlips, ~T.Seed), T.ByRule == BySettings,
                                        triedPolicy(T)});
    decideBy({&Current.Plan->Evictions, &Current.Plan->Priorities, nullptr});
  };
  if (HasTrials && runTrials({Stage::Registers, Shape.key(), F, [&MF] { return &MF; }}, Begin))
    return Current.Plan.get();
  if (const Overrides *Known = Table ? Table->find(Shape.key()) : nullptr)
    Current.Plan.reset(new FunctionPlan{std::move(Shape), OverridePlan(Known->Evictions, 0, 0),
                                        OverridePlan(Known->Priorities, 0, 0)});
  else if (HasTrials && NumbersQuestions)
    Current.Plan.reset(
        new FunctionPlan{std::move(Shape), OverridePlan({}, 0, 0), OverridePlan({}, 0, 0), /*ByRule=*/true});
  return Current.Plan.get();
}

FunctionPlan *planOf(const MachineFunction &MF) { return Current.Function == &MF ? Current.Plan.get() : nullptr; }

} // namespace mlgokit
