#include "passes/PassPolicy.h"

#include "passes/FunctionFeatures.h"
#include "passes/MachineFeatures.h"
#include "passes/PassNames.h"
#include "shared/HotFunctions.h"
#include "shared/ManyTargets.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <iterator>
#include <utility>

using namespace llvm;

namespace mlgokit {

namespace {

/// Those that are worth something by themselves on some functions; what a target has not never asks. First come those
/// of the code generator, by LLVM's arguments, attributes and options of it, which FunctionOptions sets, then those
/// of the optimizer, by the names by which they ask, and loop strength reduction, which is left out by an attribute
/// that the optimizer's gate sets.
constexpr StringRef Passes[] = {
    "consthoist",
    "codegenprepare",
    "early-machinelicm",
    "machine-cse",
    "machine-sink",
    "machine-cp",
    "twoaddressinstruction",
    "machine-scheduler",
    "postra-machine-sink",
    "shrink-wrap",
    "block-placement",
    "frame-pointer",
    "no-pushed-constants",
    "-grow-region-complexity-budget=0",
    "-disable-phi-elim-edge-splitting=1",
    "-join-splitedges=1",
    "InstSimplifyPass",
    "TailCallElimPass",
    "JumpThreadingPass",
    "SimplifyCFGPass",
    "InstCombinePass",
    "IndVarSimplifyPass",
    "LICMPass",
    "EarlyCSEPass",
    "GVNPass",
    "loop-reduce",
};
constexpr size_t FirstOfOptimizer = 16;

constexpr StringLiteral Occurrence = "occurrence", LeftOut = "passes_left_out";

/// All that a policy may be told: counts of the function as it came, and of its instructions now; how often this pass
/// asked for it before; how many passes were left out by now; and which pass it is, by a 1 among zeros.
const std::vector<std::string> &featureNames() {
  static const std::vector<std::string> Names = [] {
    std::vector<std::string> Found;
    for (StringRef Name : functionFeatureNames())
      Found.push_back(Name.str());
    for (StringRef Name : machineFeatureNames())
      Found.push_back(Name.str());
    Found.push_back(Occurrence.str());
    Found.push_back(LeftOut.str());
    for (StringRef Pass : Passes)
      Found.push_back("pass:" + Pass.str());
    return Found;
  }();
  return Names;
}

const size_t FirstOfMachine = functionFeatureNames().size(),
             FirstOfQuestion = FirstOfMachine + machineFeatureNames().size(), FirstPass = FirstOfQuestion + 2;

std::optional<size_t> placeOf(StringRef Pass) {
  const auto *Found = find(Passes, Pass);
  if (Found == std::end(Passes))
    return std::nullopt;
  return size_t(Found - std::begin(Passes));
}

/// What decided in the optimizer, until code generation comes to the same module.
struct HandedOver {
  const Module *Of = nullptr;
  std::shared_ptr<PassPolicy> Made;
};
thread_local HandedOver Slot;

} // namespace

PassPolicy::PassPolicy(const Settings &S) : S(S), Draws(nameOf(Problem::PassSelection), S.Seed) {}

Expected<std::shared_ptr<PassPolicy>> PassPolicy::openOptimizer(const Settings &S, const Module &M) {
  // Its log ends before the next one begins.
  Slot = {};
  Expected<std::shared_ptr<PassPolicy>> Opened = open(S, M);
  if (Opened && *Opened)
    Slot = {&M, *Opened};
  return Opened;
}

Expected<std::shared_ptr<PassPolicy>> PassPolicy::openCodeGenerator(const Settings &S, const Module &M,
                                                                    bool OnlyListens) {
  const HandedOver Before = std::exchange(Slot, {});
  // Nobody would hear of what a policy is asked that does not decide.
  if (OnlyListens && S.of(Problem::PassSelection).Log.empty())
    return nullptr;
  Expected<std::shared_ptr<PassPolicy>> Opened = Before.Of == &M ? Before.Made : open(S, M);
  if (Opened && *Opened)
    (*Opened)->OnlyListens = OnlyListens;
  return Opened;
}

Expected<std::shared_ptr<PassPolicy>> PassPolicy::open(const Settings &S, const Module &M) {
  const ProblemSettings &Mine = S.of(Problem::PassSelection);
  const bool Decides = S.hasPolicy(Problem::PassSelection);
  if (!Decides && Mine.Log.empty())
    return nullptr;
  std::shared_ptr<PassPolicy> Made(new PassPolicy(S));
  if (Decides && Mine.Policy != ":default")
    if (Error E = Made->connectPolicy(M))
      return std::move(E);
  if (!Made->P && Mine.Log.empty() && Mine.Policy != ":default")
    return nullptr;
  std::vector<TensorSpec> Columns;
  for (const std::string &Name : featureNames())
    Columns.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  for (const char *Name : {"left_out_default", "left_out"})
    Columns.push_back(TensorSpec::createSpec<int64_t>(Name, {1}));
  Columns.push_back(TensorSpec::createSpec<float>("log_probability", {1}));
  if (Error E = openLog(Problem::PassSelection, S, Columns).moveInto(Made->Log))
    return std::move(E);
  return std::move(Made);
}

Error PassPolicy::connectPolicy(const Module &M) {
  if (Error E = loadPolicy(Problem::PassSelection, S, M).moveInto(P))
    return E;
  StringMap<size_t> Places;
  for (const std::string &Name : featureNames())
    Places.try_emplace(Name, Places.size());
  if (Error E = findFeatures(*P, Places).moveInto(Sources))
    return E;
  Row.resize(Sources.size());
  // What it was not told of, it knows nothing about.
  Knows.assign(std::size(Passes), none_of(Sources, [](size_t Source) { return Source >= FirstPass; }));
  for (size_t Source : Sources)
    if (Source >= FirstPass)
      Knows[Source - FirstPass] = true;
  if (!P->isFor(M))
    P.reset();
  return Error::success();
}

bool PassPolicy::isForIt(const Function &F) const { return (S.AnyLevel || F.hasOptSize()) && !isHot(F, S.KeepHot); }

PassPolicy::Known PassPolicy::begin(const Function &F) {
  Known K;
  K.Values = functionFeatures(F);
  K.Values.resize(featureNames().size());
  K.Questions.resize(std::size(Passes));
  K.IsLlvms = hasManyTargets(F);
  return K;
}

bool PassPolicy::hearsOptimizer() const {
  return Log || (P ? is_contained(ArrayRef(Knows).drop_front(FirstOfOptimizer), true) : S.FlipProbability > 0);
}

std::vector<uint32_t> PassPolicy::leftOutOfOptimizer(const Function &F) {
  std::vector<uint32_t> LeftOut;
  if (!isForIt(F))
    return LeftOut;
  Known K = begin(F);
  for (size_t Place = FirstOfOptimizer; Place < std::size(Passes); ++Place)
    if (decide(F, K, Place))
      LeftOut.push_back(passNumber(Passes[Place]));
  Current = nullptr;
  return LeftOut;
}

bool PassPolicy::enter(const Function &F) {
  if (!isForIt(F))
    return false;
  Known &K = Functions[&F];
  if (K.Values.empty())
    K = begin(F);
  return true;
}

bool PassPolicy::leavesOut(const Function &F, const MachineFunction *Code, StringRef Pass) {
  const std::optional<size_t> Place = placeOf(Pass);
  if (!Place)
    return false;
  Known &K = Functions[&F];
  countMachineFeatures(Code, MutableArrayRef(K.Values).slice(FirstOfMachine, machineFeatureNames().size()));
  return decide(F, K, *Place);
}

bool PassPolicy::decide(const Function &F, Known &K, size_t Place) {
  if (Current != &F)
    Draws.enter(F.getName());
  Current = &F;
  K.Values[FirstOfQuestion] = K.Questions[Place]++;
  K.Values[FirstPass + Place] = 1;
  double Preference = -HeuristicPreference;
  if (P && !OnlyListens && Knows[Place] && !K.IsLlvms) {
    for (size_t I = 0; I < Sources.size(); ++I)
      Row[I] = double(K.Values[Sources[I]]);
    Preference = P->preference(Row, [] { return false; });
  }
  Binary Decided = decideBinary(Preference, {S.Temperature, S.FlipProbability}, Draws.next());
  if (Log) {
    if (Log->currentContext() != F.getName())
      Log->switchContext(F.getName());
    size_t Column = 0;
    auto Write = [&](const auto &Now) { Log->logTensorValue(Column++, reinterpret_cast<const char *>(&Now)); };
    Log->startObservation();
    for (int64_t Value : K.Values)
      Write(Value);
    Write(int64_t(0));
    Write(int64_t(Decided.Yes));
    Write(float(Decided.LogProbability));
    Log->endObservation();
  }
  K.Values[FirstPass + Place] = 0;
  K.Values[FirstOfQuestion + 1] += Decided.Yes;
  return Decided.Yes;
}

} // namespace mlgokit
