#include "regalloc/EvictionModel.h"

#include "regalloc/RegAlloc.h"
#include "trials/TrialCopy.h"
#include "trials/Trials.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

EvictionModel::EvictionModel(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs, const Settings &S, EvictionRule R)
    : MLModelRunner(Ctx, MLModelRunner::Kind::NoOp, Inputs.size()), Inputs(Inputs), S(S), R(R),
      Draws(nameOf(Problem::RegallocEviction), S.Seed) {
  size_t Bytes = 0;
  for (const TensorSpec &Spec : Inputs)
    Bytes += alignTo(Spec.getTotalTensorBufferSize(), alignof(int64_t));
  Values.resize(Bytes / sizeof(int64_t));
  Bytes = 0;
  for (size_t I = 0; I < Inputs.size(); ++I) {
    setUpBufferForTensor(I, Inputs[I], reinterpret_cast<char *>(Values.data()) + Bytes);
    Bytes += alignTo(Inputs[I].getTotalTensorBufferSize(), alignof(int64_t));
  }
}

Expected<std::unique_ptr<EvictionModel>> EvictionModel::create(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs,
                                                               const Settings &S, EvictionRule R,
                                                               std::optional<Policy> P) {
  std::unique_ptr<EvictionModel> M(new EvictionModel(Ctx, Inputs, S, R));
  for (size_t I = 0; I < Inputs.size(); ++I)
    if (Inputs[I].name() == "mask" && Inputs[I].isElementType<int64_t>()) {
      M->Mask = M->getTensor<int64_t>(I);
      M->Columns = Inputs[I].getElementCount();
    }
  if (!M->Mask)
    return createStringError(inconvertibleErrorCode(),
                             "expected the feature 'mask' (int64_t) from LLVM's eviction advisor, found none; this "
                             "compiler is not one that the plugin knows");
  M->Logits.resize(M->Columns);
  M->P = std::move(P);
  if (M->P)
    if (Error E = M->connectPolicy())
      return std::move(E);
  std::vector<TensorSpec> Names = Inputs;
  for (const char *Name : {"index_to_evict_default", "index_to_evict"})
    Names.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  Names.push_back(TensorSpec::createSpec<float>("log_probability", {1}));
  M->Numbered = hasTrials(Stage::Registers);
  if (M->Numbered)
    for (const char *Name : {"live_range", "nth"})
      Names.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  Expected<std::unique_ptr<Logger>> Opened = openLog(Problem::RegallocEviction, S, Names, hasScores());
  if (!Opened)
    return Opened.takeError();
  M->Log = FunctionLog(std::move(*Opened));
  return M;
}

Error EvictionModel::connectPolicy() {
  if (P->mask() != "mask")
    return createStringError(inconvertibleErrorCode(), "policy " + P->origin() + ": expected the mask 'mask', found '" +
                                                           P->mask() + "'; train it for this compiler");
  StringMap<size_t> Known;
  for (const TensorSpec &Spec : Inputs)
    Known.try_emplace(Spec.name(), Known.size());
  Expected<std::vector<size_t>> Found = findFeatures(*P, Known);
  if (!Found)
    return Found.takeError();
  for (const size_t I : *Found) {
    const TensorSpec &Spec = Inputs[I];
    const bool Typed = Spec.isElementType<float>() || Spec.isElementType<int64_t>();
    if (!Typed || (Spec.getElementCount() != 1 && Spec.getElementCount() != Columns))
      return createStringError(inconvertibleErrorCode(), "policy " + P->origin() + ": expected the feature '" +
                                                             Spec.name() + "' to have 1 or " + std::to_string(Columns) +
                                                             " elements of type int64_t or float, found another; "
                                                             "train a policy without it");
  }
  Sources = std::move(*Found);
  Row.resize(Sources.size());
  return Error::success();
}

void EvictionModel::enter(StringRef Name) {
  if (Function == Name)
    return;
  Function = Name.str();
  Log.enter(Name);
  Draws.enter(Name);
}

void *EvictionModel::evaluateUntyped() {
  decide(*Now);
  // LLVM's advisor must not see a column that it masked out, even where the heuristic would take it.
  Answer = int64_t(Mask[Now->Column] ? Now->Column : firstLegal());
  return &Answer;
}

size_t EvictionModel::firstLegal() const { return size_t(std::find(Mask, Mask + Columns - 1, 1) - Mask); }

void EvictionModel::decide(EvictionQuestion &Q) {
  Q.Asked = true;
  size_t Default = Columns - 1; // the range that asks
  if (followsHeuristic() || Log || Q.Plan)
    if ((Q.DefaultAnswer = Q.askHeuristic()))
      Default = Q.Order.positionOf(Q.DefaultAnswer).value_or(Default);
  if (Q.Wanted) {
    Q.Column = Q.Plan->column(*Q.Wanted, {Mask, Columns}, Default);
    Q.Echo = Q.Column == Default;
    return;
  }
  const Draw D = Draws.next();
  std::fill(Logits.begin(), Logits.end(), 0);
  mlgokit::Column Chosen;
  switch (R) {
  case EvictionRule::Default:
    Logits[Default] = 1;
    Chosen =
        Mask[Default] ? chooseColumn(Logits, {Mask, Columns}, {0, S.FlipProbability}, D) : mlgokit::Column{Default, 0};
    Q.Echo = Chosen.Index == Default;
    break;
  case EvictionRule::First:
    Chosen = chooseColumn(Logits, {Mask, Columns}, {0, S.FlipProbability}, D);
    break;
  case EvictionRule::Random:
    Chosen = chooseColumn(Logits, {Mask, Columns}, {1, 0}, D);
    break;
  case EvictionRule::Policy:
    for (size_t C = 0; C < Columns; ++C)
      if (Mask[C])
        Logits[C] = logitOf(C);
    Chosen = chooseColumn(Logits, {Mask, Columns}, {S.Temperature, S.FlipProbability}, D);
    break;
  }
  Q.Column = Chosen.Index;
  if (Q.Plan && Q.Column != Default)
    Q.Plan->record(uint16_t(Q.Column));
  if (Log && !isTrial())
    record(Q.Plan, int64_t(Default), int64_t(Q.Column), float(Chosen.LogProbability));
}

double EvictionModel::logitOf(size_t Column) {
  for (size_t I = 0; I < Sources.size(); ++I) {
    const TensorSpec &Spec = Inputs[Sources[I]];
    const size_t At = Spec.getElementCount() == 1 ? 0 : Column;
    Row[I] = Spec.isElementType<float>() ? double(getTensor<float>(Sources[I])[At])
                                         : double(getTensor<int64_t>(Sources[I])[At]);
  }
  return P->columnLogit(Row);
}

void EvictionModel::record(const OverridePlan *Plan, int64_t Default, int64_t Decision, float LogProbability) {
  Log.observe();
  size_t Column = 0;
  for (; Column < Inputs.size(); ++Column)
    Log->logTensorValue(Column, static_cast<const char *>(getTensorUntyped(Column)));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Default));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Decision));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&LogProbability));
  if (Numbered) {
    const auto [Of, Nth] = Plan ? Plan->last() : std::pair<uint32_t, uint16_t>(~0u, 0);
    for (const int64_t Number : {int64_t(Of), int64_t(Nth)})
      Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Number));
  }
  Log->endObservation();
}

} // namespace mlgokit
