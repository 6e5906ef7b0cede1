#include "regalloc/CurrentFunction.h"

#include "regalloc/TrialCopy.h"
#include "regalloc/Trials.h"

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

FunctionPlan *enterFunction(const MachineFunction &MF, const AllocationTable *Table) {
  endTrial(/*IsThere=*/true);
  Current.Function = &MF;
  Current.Plan.reset();
  if (!Table && !hasTrials())
    return nullptr;
  FunctionShape Shape(MF);
  if (hasTrials())
    Current.Plan = runTrials(MF, Shape);
  if (const Overrides *Known = Table && !Current.Plan ? Table->find(Shape.key()) : nullptr)
    Current.Plan.reset(new FunctionPlan{std::move(Shape), OverridePlan(Known->Evictions, 0, 0),
                                        OverridePlan(Known->Priorities, 0, 0)});
  return Current.Plan.get();
}

FunctionPlan *planOf(const MachineFunction &MF) { return Current.Function == &MF ? Current.Plan.get() : nullptr; }

} // namespace mlgokit
