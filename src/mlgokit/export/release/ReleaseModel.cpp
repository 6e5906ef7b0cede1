#include "release/ReleaseModel.h"

#include "shared/Choice.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

namespace mlgokit {

namespace {

constexpr double OptMinSizeThreshold = 5;

} // namespace

ReleaseModel::ReleaseModel(std::vector<ReleaseInput> All, std::vector<ReleasePolicy> Policies,
                           std::optional<size_t> Mask, std::optional<size_t> Selector, std::optional<size_t> Cost)
    : Inputs(std::move(All)), Mask(Mask), Selector(Selector), Cost(Cost) {
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

/// LLVM's heuristic cannot be asked here. With -Oz it inlines what costs less than InlineConstants::OptMinSizeThreshold
/// (llvm/include/llvm/Analysis/InlineCost.h), and the cost is a feature.
bool ReleaseModel::inlines(Choice &Of) {
  fill(Of, 0);
  const std::optional<double> Preference = Of.Numbers.preference(Row);
  if (!Preference)
    return Cost && value(*Cost, 0) < OptMinSizeThreshold;
  return *Preference > 0;
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
  case OutputKind::ColumnEffect: // not exported
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
