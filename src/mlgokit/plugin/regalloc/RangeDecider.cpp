#include "regalloc/RangeDecider.h"

#include "regalloc/RangeFeatures.h"
#include "regalloc/RegAlloc.h"
#include "shared/ManyTargets.h"
#include "shared/MinSize.h"
#include "trials/Trials.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringSwitch.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr size_t Llvms = 3;                  // features of LLVM's, which come first
constexpr double MostDefault = 4294967040.0; // the nearest float below 2**32

const std::vector<TensorSpec> &features() {
  static const std::vector<TensorSpec> Specs = [] {
    std::vector<TensorSpec> Made = {TensorSpec::createSpec<int64_t>("li_size", {1}),
                                    TensorSpec::createSpec<int64_t>("stage", {1}),
                                    TensorSpec::createSpec<float>("weight", {1})};
    for (StringRef Name : rangeFeatureNames())
      Made.push_back(TensorSpec::createSpec<float>(Name.str(), {1}));
    return Made;
  }();
  return Specs;
}

} // namespace

bool isClosedIn(const Policy &P, const MachineFunction &MF) {
  return (P.gateFeature() == LevelFeature && !P.believes(isForSize(MF.getFunction()))) ||
         (P.csrFirstTimeCost() && isDoubted(MF)) || (isForSize(MF.getFunction()) && hasManyTargets(MF.getFunction()));
}

Error RangeDecider::open(const Settings &S, const Module &M) {
  const bool Asked = S.hasPolicy(K.Of), HasLog = !S.of(K.Of).Log.empty();
  const bool OnlyTuned = (S.hasAllocations() || hasTrials(Stage::Registers)) && !Asked;
  if (!Asked && !HasLog)
    return Error::success();
  const std::optional<Rule> Named = StringSwitch<std::optional<Rule>>(S.of(K.Of).Policy)
                                        .Case(":default", Rule::Default)
                                        .Case(":random", Rule::Random)
                                        .Default(std::nullopt);
  R = Named.value_or(OnlyTuned ? Rule::Default : Rule::Policy);
  Temperature = S.Temperature;
  if (S.FlipProbability > 0 && !OnlyTuned)
    return createStringError(inconvertibleErrorCode(), "expected no flip probability with a policy for " +
                                                           nameOf(K.Of).str() +
                                                           ", found one; a number has no opposite, give a temperature");
  if (R == Rule::Policy) {
    if (Error E = decideBy(loadPolicy(K.Of, S, M)))
      return E;
    if (!P->isFor(M)) {
      R = Rule::Default;
      P.reset();
      GateAt.reset();
      Sources.clear();
    }
  }
  Draws.emplace(nameOf(K.Of), S.Seed);
  std::vector<TensorSpec> Columns = features();
  Columns.push_back(K.HasWholeDefault ? TensorSpec::createSpec<int64_t>(K.Default, {1})
                                      : TensorSpec::createSpec<float>(K.Default, {1}));
  Columns.push_back(TensorSpec::createSpec<float>(K.Decision, {1}));
  Columns.push_back(TensorSpec::createSpec<float>("log_probability", {1}));
  Expected<std::unique_ptr<Logger>> Opened = openLog(K.Of, S, Columns, hasScores());
  if (!Opened)
    return Opened.takeError();
  Log = FunctionLog(std::move(*Opened));
  SeesOurs |= bool(Log);
  return Error::success();
}

Error RangeDecider::decideBy(Expected<Policy> Loaded) {
  if (!Loaded)
    return Loaded.takeError();
  StringMap<size_t> Known;
  for (const TensorSpec &Spec : features())
    Known.try_emplace(Spec.name(), Known.size());
  Expected<std::vector<size_t>> Found = findFeatures(*Loaded, Known);
  if (!Found)
    return Found.takeError();
  R = Rule::Policy;
  P.emplace(std::move(*Loaded));
  Sources = std::move(*Found);
  const auto Gate = find(P->features(), P->gateFeature());
  GateAt = Gate == P->features().end() ? std::nullopt : std::optional(size_t(Gate - P->features().begin()));
  SeesOurs = bool(Log) || any_of(Sources, [](size_t Source) { return Source >= Llvms; });
  if (!Draws)
    Draws.emplace(nameOf(K.Of), 0);
  return Error::success();
}

bool RangeDecider::isWantedIn(const MachineFunction &MF) const {
  return bool(Log) || (isWanted() && !(P && isClosedIn(*P, MF)));
}

std::optional<float> RangeDecider::decide(const MachineFunction &MF, const RangeValues &Values,
                                          function_ref<unsigned()> AskHeuristic) {
  if (!isWanted())
    return std::nullopt;
  enter(MF);
  SmallVector<double, 32> Row;
  const double First[] = {double(Values.Size), double(Values.Stage), double(Values.Weight)};
  for (size_t Source : Sources)
    Row.push_back(Source < Llvms ? First[Source] : double(Values.Ours[Source - Llvms]));
  const bool ByHeuristic = R == Rule::Default || IsClosed || (GateAt && !P->believes(Row[*GateAt] != 0));
  const Draw D = Draws->next();
  const unsigned Default = Log ? AskHeuristic() : 0;
  RangeDecision Decided;
  if (ByHeuristic)
    // As the log has it; the allocator gets the exact value.
    Decided = {float(std::min(double(Default), MostDefault)), 0};
  else
    Decided = R == Rule::Random ? K.Any(D) : K.Draw(P->unit(Row), {Temperature, 0}, D);
  if (Log && !isTrial())
    write(Values, Default, Decided);
  return ByHeuristic ? std::nullopt : std::optional(Decided.Value);
}

void RangeDecider::enter(const MachineFunction &MF) {
  if (Function == MF.getName())
    return;
  Function = MF.getName().str();
  Log.enter(Function);
  Draws->enter(Function);
  IsClosed = P && isClosedIn(*P, MF);
}

void RangeDecider::write(const RangeValues &Values, unsigned Default, const RangeDecision &Decided) {
  size_t Column = 0;
  auto Write = [&](const auto &Now) { Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Now)); };
  Log.observe();
  Write(Values.Size);
  Write(Values.Stage);
  Write(Values.Weight);
  for (float Value : Values.Ours)
    Write(Value);
  if (K.HasWholeDefault)
    Write(int64_t(Default));
  else
    Write(float(Default));
  Write(Decided.Value);
  Write(float(Decided.LogProbability));
  Log->endObservation();
}

} // namespace mlgokit
