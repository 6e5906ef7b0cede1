// Eviction: whose register a live range takes.
//
// LLVM's own ML advisor computes the features. Its model is replaced by one of ours, inside the same process; what a
// decision costs beside the features is one virtual call.
#include "regalloc/Allocation.h"
#include "regalloc/Channel.h"
#include "shared/Exploration.h"
#include "shared/Files.h"
#include "regalloc/RegAlloc.h"
#include "regalloc/RegAllocAbi.h"
#include "regalloc/RegAllocAnalysis.h"
#include "regalloc/Trials.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassRegistry.h"

#include <algorithm>
#include <cstring>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef ChannelOption = "regalloc-evict-interactive-channel-base";

enum class Rule { Policy, Default, Random, First };

// InteractiveModelRunner keeps the features that its advisor fills in a private member. An explicit instantiation may
// name it (C++17, [temp.explicit] 13.9.2); that is how this file learns names, types and shapes from the compiler
// itself.
template <auto Member> struct Reader {
  friend const std::vector<TensorSpec> &inputsOf(const InteractiveModelRunner &R) { return R.*Member; }
};
const std::vector<TensorSpec> &inputsOf(const InteractiveModelRunner &R);
template struct Reader<&InteractiveModelRunner::InputSpecs>;

/// One question of the allocator.
struct Question {
  const RegAllocEvictionAdvisor &Heuristic;
  const LiveInterval &Range;
  const AllocationOrder &Order;
  const uint8_t CostLimit;
  const SmallVirtRegSet &Fixed;
  Course *Planned = nullptr;                         // of a function with a plan
  std::optional<Course::Turn> Turned = std::nullopt; // what the plan says of this question
  bool Asked = false;                                // whether LLVM's advisor got as far as asking the model
  size_t Column = 0;                                 // the answer
  bool Echo = false;                                 // whether the heuristic's own answer was chosen
  MCRegister DefaultAnswer;                          // only if somebody needed it

  MCRegister askHeuristic() const { return Heuristic.tryFindEvictionCandidate(Range, Order, CostLimit, Fixed); }
};

/// Decides for one module, and stands where LLVM's advisor expects its model.
class Model final : public MLModelRunner {
public:
  static Expected<std::unique_ptr<Model>> create(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs,
                                                 const Settings &S, Rule R, std::optional<Policy> P);

  bool followsHeuristic() const { return R == Rule::Default; }
  void enter(StringRef Name) {
    if (Function == Name)
      return;
    Function = Name.str();
    Draws.enter(Name);
  }
  Question *Now = nullptr;

private:
  Model(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs, const Settings &S, Rule R)
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

  void *evaluateUntyped() override {
    decide(*Now);
    // LLVM's advisor must not see a column that it masked out, even where the heuristic would take it.
    Answer = int64_t(Mask[Now->Column] ? Now->Column : firstLegal());
    return &Answer;
  }
  size_t firstLegal() const { return size_t(std::find(Mask, Mask + Columns - 1, 1) - Mask); }
  Error connectPolicy();
  void decide(Question &Q);
  double logitOf(size_t Column);
  void record(int64_t Default, int64_t Decision, float LogProbability);

  const std::vector<TensorSpec> Inputs;
  const Settings S;
  const Rule R;
  std::optional<Policy> P;
  std::unique_ptr<Logger> Log;
  const int64_t *Mask = nullptr;
  size_t Columns = 0;
  std::vector<size_t> Sources; // where each of the policy's features is among the inputs
  std::vector<double> Row, Logits;
  std::vector<int64_t> Values; // aligned room for the tensors
  std::string Function;
  FunctionDraws Draws;
  int64_t Answer = 0;
};

Expected<std::unique_ptr<Model>> Model::create(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs,
                                               const Settings &S, Rule R, std::optional<Policy> P) {
  std::unique_ptr<Model> M(new Model(Ctx, Inputs, S, R));
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
  Expected<std::unique_ptr<Logger>> Log = openLog(Problem::RegallocEviction, S, Names);
  if (!Log)
    return Log.takeError();
  M->Log = std::move(*Log);
  return M;
}

Error Model::connectPolicy() {
  StringMap<size_t> Known;
  for (const TensorSpec &Spec : Inputs)
    Known.try_emplace(Spec.name(), Known.size());
  Expected<std::vector<size_t>> Found = findFeatures(*P, Known);
  if (!Found)
    return Found.takeError();
  Sources = std::move(*Found);
  Row.resize(Sources.size());
  if (P->mask() != "mask")
    return createStringError(inconvertibleErrorCode(), "policy " + P->origin() + ": expected the mask 'mask', found '" +
                                                           P->mask() + "'; train it for this compiler");
  for (size_t I : Sources) {
    const TensorSpec &Spec = Inputs[I];
    const bool Typed = Spec.isElementType<float>() || Spec.isElementType<int64_t>();
    if (!Typed || (Spec.getElementCount() != 1 && Spec.getElementCount() != Columns))
      return createStringError(inconvertibleErrorCode(), "policy " + P->origin() + ": expected the feature '" +
                                                             Spec.name() + "' to have 1 or " + std::to_string(Columns) +
                                                             " elements of type int64_t or float, found another; "
                                                             "train a policy without it");
  }
  return Error::success();
}

void Model::decide(Question &Q) {
  Q.Asked = true;
  size_t Default = Columns - 1; // the range that asks
  if (R == Rule::Default || Log || Q.Planned)
    if ((Q.DefaultAnswer = Q.askHeuristic()))
      Default = Q.Order.positionOf(Q.DefaultAnswer).value_or(Default);
  if (Q.Turned) {
    Q.Column = Q.Planned->turn(*Q.Turned, {Mask, Columns}, Default);
    Q.Echo = Q.Column == Default;
    return;
  }
  const Draw D = Draws.next();
  std::fill(Logits.begin(), Logits.end(), 0);
  mlgokit::Column Chosen;
  switch (R) {
  case Rule::Default:
    Logits[Default] = 1;
    Chosen =
        Mask[Default] ? chooseColumn(Logits, {Mask, Columns}, {0, S.FlipProbability}, D) : mlgokit::Column{Default, 0};
    Q.Echo = Chosen.Index == Default;
    break;
  case Rule::First:
    Chosen = chooseColumn(Logits, {Mask, Columns}, {0, S.FlipProbability}, D);
    break;
  case Rule::Random:
    Chosen = chooseColumn(Logits, {Mask, Columns}, {1, 0}, D);
    break;
  case Rule::Policy:
    for (size_t C = 0; C < Columns; ++C)
      if (Mask[C])
        Logits[C] = logitOf(C);
    Chosen = chooseColumn(Logits, {Mask, Columns}, {S.Temperature, S.FlipProbability}, D);
    break;
  }
  Q.Column = Chosen.Index;
  if (Q.Planned && Q.Column != Default)
    Q.Planned->depart(uint16_t(Q.Column));
  if (Log && !Q.Planned)
    record(int64_t(Default), int64_t(Q.Column), float(Chosen.LogProbability));
}

double Model::logitOf(size_t Column) {
  for (size_t I = 0; I < Sources.size(); ++I) {
    const TensorSpec &Spec = Inputs[Sources[I]];
    const size_t At = Spec.getElementCount() == 1 ? 0 : Column;
    Row[I] = Spec.isElementType<float>() ? double(getTensor<float>(Sources[I])[At])
                                         : double(getTensor<int64_t>(Sources[I])[At]);
  }
  return P->columnLogit(Row);
}

void Model::record(int64_t Default, int64_t Decision, float LogProbability) {
  if (Log->currentContext() != Function)
    Log->switchContext(Function);
  Log->startObservation();
  size_t Column = 0;
  for (; Column < Inputs.size(); ++Column)
    Log->logTensorValue(Column, static_cast<const char *>(getTensorUntyped(Column)));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Default));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Decision));
  Log->logTensorValue(Column++, reinterpret_cast<const char *>(&LogProbability));
  Log->endObservation();
}

/// Asks LLVM's ML advisor, which asks the model.
class Advisor final : public RegAllocEvictionAdvisor {
public:
  Advisor(const MachineFunction &MF, const RAGreedy &RA, std::unique_ptr<RegAllocEvictionAdvisor> Ml, Model &M, Plan *P)
      : RegAllocEvictionAdvisor(MF, RA), Heuristic(MF, RA), Ml(std::move(Ml)), M(M), P(P) {
    M.enter(MF.getName());
  }

private:
  MCRegister tryFindEvictionCandidate(const LiveInterval &Range, const AllocationOrder &Order, uint8_t CostLimit,
                                      const SmallVirtRegSet &Fixed) const override {
    Question Q{Heuristic, Range, Order, CostLimit, Fixed};
    if (P) {
      Q.Planned = &P->Evictions;
      Q.Turned = P->Evictions.next(P->Shape.numberOf(Range.reg()));
      if (!Q.Turned && !P->ByRule)
        return Q.askHeuristic();
    }
    M.Now = &Q;
    const MCRegister Found = Ml->tryFindEvictionCandidate(Range, Order, CostLimit, Fixed);
    M.Now = nullptr;
    // LLVM's advisor may give up before it asks; and of what it offers, the heuristic may take something else.
    if (!Q.Asked && (P || M.followsHeuristic()))
      return Q.askHeuristic();
    if (Q.Echo)
      return Q.DefaultAnswer;
    if (Found && (!Q.Asked || Order.at(Q.Column) != Found))
      report_fatal_error("mlgokit: expected LLVM's eviction advisor to take the register that the policy chose, found "
                         "another; this compiler is not one that the plugin knows");
    return Found;
  }

  bool canEvictHintInterference(const LiveInterval &Range, MCRegister Register,
                                const SmallVirtRegSet &Fixed) const override {
    return static_cast<const RegAllocEvictionAdvisor &>(Heuristic).canEvictHintInterference(Range, Register, Fixed);
  }

  const DefaultEvictionAdvisor Heuristic;
  const std::unique_ptr<RegAllocEvictionAdvisor> Ml;
  Model &M;
  Plan *const P; // it lives as long as the function is in the allocator
};

/// Puts what was expected into its place.
template <class From, class To> Error moved(Expected<From> Source, To &Place) {
  if (Source)
    Place = std::move(*Source);
  return Source.takeError();
}

/// What the plugin keeps for the code generation of one module.
class Desk {
public:
  explicit Desk(Module &M) : Ctx(M.getContext()) {
    if (Error E = open())
      fail(std::move(E));
  }
  ~Desk() { endTrial(/*IsThere=*/false); }

  std::unique_ptr<RegAllocEvictionAdvisor> advise(const MachineFunction &MF, const RAGreedy &RA,
                                                  function_ref<std::unique_ptr<RegAllocEvictionAdvisor>()> MakeMl) {
    Plan *const Planned = Failed ? nullptr : enterFunction(MF, Table ? &*Table : nullptr);
    const bool StandsAside = Planned ? !Planned->ByRule && Planned->Evictions.isIdle()
                                     : R == Rule::Default && S.of(Problem::RegallocEviction).Log.empty();
    if (Failed || StandsAside)
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    std::unique_ptr<RegAllocEvictionAdvisor> Ml;
    if (M)
      Ml = MakeMl();
    else if (Error E = withSilentChannel(ChannelOption, [&] { Ml = MakeMl(); })) {
      fail(std::move(E));
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    }
    if (Error E = connect(Ml.get())) {
      fail(std::move(E));
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    }
    return std::make_unique<Advisor>(MF, RA, std::move(Ml), *M, Planned);
  }

private:
  Error open() {
    if (Error E = moved(readSettings(), S))
      return E;
    if (Error E = moved(loadAllocations(S), Table))
      return E;
    const std::string &Given = S.of(Problem::RegallocEviction).Policy;
    const std::optional<Rule> Named = StringSwitch<std::optional<Rule>>(Given)
                                          .Case(":default", Rule::Default)
                                          .Case(":random", Rule::Random)
                                          .Case(":first", Rule::First)
                                          .Default(std::nullopt);
    const bool OnlyTuned = (Table || hasTrials()) && !S.hasPolicy(Problem::RegallocEviction);
    if (!Named && !OnlyTuned)
      if (Error E = moved(loadPolicy(Problem::RegallocEviction, S), P))
        return E;
    R = Named.value_or(OnlyTuned ? Rule::Default : Rule::Policy);
    return refuseOptions({"regalloc-enable-advisor", ChannelOption}, policySettingOf(Problem::RegallocEviction));
  }

  /// Puts the model in the place of the one that LLVM's advisor was made with.
  Error connect(RegAllocEvictionAdvisor *Ml) {
    const auto Unknown = [](const char *What) {
      return createStringError(inconvertibleErrorCode(), std::string("expected LLVM's eviction advisor to have ") +
                                                             What +
                                                             " at its usual place, found something else; this "
                                                             "compiler is not one that the plugin knows");
    };
    if (!Ml)
      return Unknown("been made and a model");
    char *const Bytes = reinterpret_cast<char *>(Ml);
    const void *Table;
    std::memcpy(&Table, Bytes + EvictionAdvisorLayout::DefaultAdvisorAt, sizeof(Table));
    // A virtual table's first two words are not part of what an object points to.
    if (Table != MlgokitDefaultEvictionAdvisorTable + 2)
      return Unknown("the heuristic");
    InteractiveModelRunner *Theirs;
    std::memcpy(&Theirs, Bytes + EvictionAdvisorLayout::RunnerAt, sizeof(Theirs));
    std::memcpy(&Table, static_cast<const void *>(Theirs), sizeof(Table));
    if (Table != MlgokitInteractiveModelRunnerTable + 2)
      return Unknown("its model");
    if (!M) {
      Expected<std::unique_ptr<Model>> Made = Model::create(Ctx, inputsOf(*Theirs), S, R, std::move(P));
      if (!Made)
        return Made.takeError();
      M = std::move(*Made);
    }
    MLModelRunner *const Ours = M.get();
    std::memcpy(Bytes + EvictionAdvisorLayout::RunnerAt, &Ours, sizeof(Ours));
    return Error::success();
  }

  void fail(Error E) {
    Failed = true;
    Ctx.emitError("mlgokit: " + toString(std::move(E)));
  }

  LLVMContext &Ctx;
  Settings S;
  Rule R = Rule::Default;
  std::optional<AllocationTable> Table;
  std::optional<Policy> P;
  std::unique_ptr<Model> M;
  bool Failed = false;
};

#if LLVM_VERSION_MAJOR >= 22

class DeskProvider final : public RegAllocEvictionAdvisorProvider {
public:
  explicit DeskProvider(Module &M)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Release, M.getContext()),
        Llvms(createReleaseModeAdvisorProvider(Ctx)), D(M) {}
  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA,
                                                      MachineBlockFrequencyInfo *Frequencies,
                                                      MachineLoopInfo *Loops) override {
    return D.advise(MF, RA, [&] { return Llvms->getAdvisor(MF, RA, Frequencies, Loops); });
  }

private:
  const std::unique_ptr<RegAllocEvictionAdvisorProvider> Llvms;
  Desk D;
};

class Analysis final : public ModuleAnalysis<RegAllocEvictionAdvisorAnalysisLegacy, DeskProvider,
                                             MachineBlockFrequencyInfoWrapperPass, MachineLoopInfoWrapperPass> {};

#else

class Analysis final : public ModuleAnalysis<RegAllocEvictionAdvisorAnalysis, Desk,
                                             MachineBlockFrequencyInfoWrapperPass, MachineLoopInfoWrapperPass> {
  std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &MF, const RAGreedy &RA) override {
    return Made->advise(MF, RA, [&]() -> std::unique_ptr<RegAllocEvictionAdvisor> {
      if (!Llvms)
        Llvms.reset(createReleaseModeAdvisor());
      if (!Llvms)
        return nullptr;
      // LLVM's analysis is in no pass manager; it sees the other analyses through this one.
      if (!Llvms->getResolver())
        Llvms->setResolver(new AnalysisResolver(getResolver()->getPMDataManager()));
      AnalysisResolver &Seen = *Llvms->getResolver();
      Seen.clearAnalysisImpls();
      for (char *ID : {&MachineBlockFrequencyInfoWrapperPass::ID, &MachineLoopInfoWrapperPass::ID}) {
        Pass *Found = getResolver()->findImplPass(ID);
        if (!Found)
          return nullptr;
        Seen.addAnalysisImplsPair(ID, Found);
      }
      return Llvms->getAdvisor(MF, RA);
    });
  }

  std::unique_ptr<RegAllocEvictionAdvisorAnalysis> Llvms;
};

#endif

} // namespace

void registerEvictionAdvisor() {
  PassRegistry &Registry = *PassRegistry::getPassRegistry();
#if LLVM_VERSION_MAJOR >= 22
  initializeRegAllocEvictionAdvisorAnalysisLegacyPass(Registry);
#else
  initializeRegAllocEvictionAdvisorAnalysisPass(Registry);
#endif
  replaceAnalysis<Problem::RegallocEviction, Analysis>();
}

} // namespace mlgokit
