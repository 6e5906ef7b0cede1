#include "release/ReleaseModel.h"

#include "shared/Choice.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace mlgokit {

namespace {

// InlineConstants of llvm/include/llvm/Analysis/InlineCost.h
constexpr double OptMinSizeThreshold = 5, IndirectCallThreshold = 100;

} // namespace

ReleaseModel::ReleaseModel(std::vector<ReleaseInput> All, std::vector<ReleasePolicy> Policies,
                           std::optional<size_t> Mask, std::optional<size_t> Selector,
                           std::optional<HeuristicInputs> Heuristic)
    : Inputs(std::move(All)), Mask(Mask), Selector(Selector), Heuristic(Heuristic) {
  for (ReleasePolicy &Policy : Policies) {
    Evaluator Numbers(std::move(Policy.Numbers));
    Choices.push_back({std::move(Policy), std::move(Numbers)});
  }
  for (const ReleaseInput &Input : Inputs)
    Buffers.emplace_back(Input.IsFloat ? (Input.Elements + 1) / 2 : Input.Elements);
  if (Mask)
    Logits.resize(Inputs[*Mask].Elements);
}

ReleaseModel::Choice &ReleaseModel::chosen() {
  if (!Selector)
    return Choices.front();
  const std::vector<int64_t> &Hash = Buffers[*Selector];
  for (Choice &Now : Choices)
    if (Now.About.High == uint64_t(Hash[0]) && Now.About.Low == uint64_t(Hash[1]))
      return Now;
  std::fprintf(stderr, "mlgokit: expected a policy of this compiler as -ml-inliner-model-selector:");
  for (const Choice &Now : Choices)
    std::fprintf(stderr, " %s", Now.About.Name);
  std::fprintf(stderr, "; found another, or none\n");
  std::abort();
}

double ReleaseModel::value(size_t Input, size_t Column) const {
  const int64_t *Buffer = Buffers[Input].data();
  const size_t At = Inputs[Input].Elements == 1 ? 0 : Column;
  if (!Inputs[Input].IsFloat)
    return double(Buffer[At]);
  float Value;
  std::memcpy(&Value, reinterpret_cast<const char *>(Buffer) + At * sizeof(float), sizeof(float));
  return double(Value);
}

void ReleaseModel::fill(const Choice &Of, size_t Column) {
  Row.resize(Of.About.Sources.size());
  for (size_t I = 0; I < Row.size(); ++I)
    Row[I] = value(Of.About.Sources[I], Column);
}

/// LLVM's heuristic cannot be asked here. With -Oz it inlines what costs less than OptMinSizeThreshold, and the cost is
/// a feature, but for calls that inlining would make direct. Such a call has a bonus of what its own inlining would
/// leave of a threshold: of IndirectCallThreshold in the feature, of OptMinSizeThreshold in the heuristic. Where there
/// are several, LLVM tells the sum of their costs alone, and each is taken for one of the mean.
bool ReleaseModel::heuristicInlines() const {
  if (!Heuristic)
    return false;
  const double Calls = value(Heuristic->NestedCalls, 0), Each = Calls > 0 ? value(Heuristic->NestedCost, 0) / Calls : 0;
  auto Bonus = [&](double Threshold) { return Calls > 0 ? Calls * std::max(0.0, Threshold - Each) : 0; };
  const double Cost = value(Heuristic->Cost, 0) + Bonus(IndirectCallThreshold) - Bonus(OptMinSizeThreshold);
  return Cost < OptMinSizeThreshold;
}

bool ReleaseModel::inlines(Choice &Of) {
  fill(Of, 0);
  const std::optional<double> Preference = Of.Numbers.preference(Row);
  return Preference ? *Preference > 0 : heuristicInlines();
}

int64_t ReleaseModel::column(Choice &Of) {
  const std::vector<int64_t> &Legal = Buffers[*Mask];
  for (size_t C = 0; C < Logits.size(); ++C) {
    Logits[C] = 0;
    if (!Legal[C])
      continue;
    fill(Of, C);
    Logits[C] = Of.Numbers.columnLogit(Row);
  }
  return int64_t(chooseColumn(Logits, Legal, Spread(), Draw()).Index);
}

void ReleaseModel::run() {
  Choice &Now = chosen();
  switch (Now.Numbers.output()) {
  case OutputKind::EffectBytes:
  case OutputKind::Logits:
    Answer.Index = inlines(Now);
    break;
  case OutputKind::ColumnLogit:
    Answer.Index = column(Now);
    break;
  case OutputKind::Priority:
  case OutputKind::Log2Factor: // not exported
    fill(Now, 0);
    Answer.Priority = priorityOf(Now.Numbers.unit(Row));
    break;
  }
}

int findName(const std::vector<const char *> &Names, const char *Wanted, size_t Length) {
  for (size_t I = 0; I < Names.size(); ++I)
    if (std::strlen(Names[I]) == Length && !std::memcmp(Names[I], Wanted, Length))
      return int(I);
  return -1;
}

} // namespace mlgokit
