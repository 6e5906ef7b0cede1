// The model of evictions: stands where LLVM's advisor expects one, and decides for one module by rule, policy or plan.
#ifndef MLGOKIT_REGALLOC_EVICTIONMODEL_H
#define MLGOKIT_REGALLOC_EVICTIONMODEL_H

#include "majors/RegAllocAbi.h"
#include "regalloc/FunctionLog.h"
#include "shared/Exploration.h"
#include "shared/Files.h"
#include "trials/OverridePlan.h"

#include "llvm/Analysis/MLModelRunner.h"
#include "llvm/CodeGen/LiveInterval.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlgokit {

enum class EvictionRule { Policy, Default, Random, First };

/// One question of the allocator.
struct EvictionQuestion {
  const llvm::RegAllocEvictionAdvisor &Heuristic;
  const llvm::LiveInterval &Range;
  const llvm::AllocationOrder &Order;
  const uint8_t CostLimit;
  const llvm::SmallVirtRegSet &Fixed;
  OverridePlan *Plan = nullptr;                         // of a function with a plan
  std::optional<PlannedOverride> Wanted = std::nullopt; // what the plan says of this question
  bool Asked = false;                                   // whether LLVM's advisor got as far as asking the model
  size_t Column = 0;                                    // the answer
  bool Echo = false;                                    // whether the heuristic's own answer was chosen
  llvm::MCRegister DefaultAnswer;                       // only if somebody needed it

  llvm::MCRegister askHeuristic() const { return Heuristic.tryFindEvictionCandidate(Range, Order, CostLimit, Fixed); }
};

/// Decides for one module, and stands where LLVM's advisor expects its model.
class EvictionModel final : public llvm::MLModelRunner {
public:
  static llvm::Expected<std::unique_ptr<EvictionModel>> create(llvm::LLVMContext &Ctx,
                                                               const std::vector<llvm::TensorSpec> &Inputs,
                                                               const Settings &S, EvictionRule R,
                                                               std::optional<Policy> P);

  /// Whether the heuristic answers what LLVM's advisor does not ask the model.
  bool followsHeuristic() const { return R == EvictionRule::Default; }
  /// How many registers LLVM's advisor has columns for. It does not check that there are no more, as there are on
  /// PowerPC.
  size_t registers() const { return Columns - 1; }
  void enter(llvm::StringRef Name);
  /// Takes what LLVM says of the allocation of \p Function into the log.
  void finish(llvm::StringRef Function, llvm::function_ref<float()> Score) { Log.finish(Function, Score); }
  EvictionQuestion *Now = nullptr;

private:
  EvictionModel(llvm::LLVMContext &Ctx, const std::vector<llvm::TensorSpec> &Inputs, const Settings &S, EvictionRule R);
  void *evaluateUntyped() override;
  size_t firstLegal() const;
  llvm::Error connectPolicy();
  void decide(EvictionQuestion &Q);
  double logitOf(size_t Column);
  void record(const OverridePlan *Plan, int64_t Default, int64_t Decision, float LogProbability);

  const std::vector<llvm::TensorSpec> Inputs;
  const Settings S;
  const EvictionRule R;
  std::optional<Policy> P;
  FunctionLog Log;
  bool Numbered = false; // whether the log says which question each is, as trials name it
  const int64_t *Mask = nullptr;
  size_t Columns = 0;
  std::vector<size_t> Sources; // where each of the policy's features is among the inputs
  std::vector<double> Row, Logits;
  std::vector<int64_t> Values; // aligned room for the tensors
  std::string Function;
  FunctionDraws Draws;
  int64_t Answer = 0;
};

} // namespace mlgokit

#endif
