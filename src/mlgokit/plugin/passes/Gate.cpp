// The gate of code generation.
//
// Every optional pass asks the gate of its LLVMContext whether it may run on a function; what LLVM requires never asks.
// It is what -opt-bisect-limit goes by.
#include "passes/Gate.h"

#include "identity/BodyHash.h"
#include "majors/PassGate.h"
#include "passes/FunctionOptions.h"
#include "passes/LoopReduce.h"
#include "passes/PassNames.h"
#include "passes/PassPolicy.h"
#include "passes/UnwindRows.h"
#include "shared/Settings.h"
#include "trials/OverridePlan.h"
#include "trials/OverrideTable.h"
#include "trials/TrialCopy.h"
#include "trials/Trials.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/CodeGen/MachineModuleInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <memory>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

/// Runs before the code generator comes to functions one by one, or not, as the target wants; so its answer is always
/// LLVM's.
constexpr StringLiteral Outside = "objc-arc-contract";
constexpr StringLiteral Selection = "-isel";

ArrayRef<Override> toggled(const Trial &T) {
  return ArrayRef<Override>(T.Toggled).take_front(std::min<size_t>(T.Toggles, std::size(T.Toggled)));
}

/// Answers for the code generation of one module.
class Gate final : public PassGate {
public:
  Gate(Module &M, OptPassGate &Before, std::function<MachineFunction *(const Function &)> CodeOf)
      : M(M), Before(Before), CodeOf(std::move(CodeOf)),
        IsOneByOne(Triple(M.getTargetTriple()).getArch() == Triple::x86_64),
        WithoutLoopReduce(functionsWithoutLoopReduce(M)) {}

  Error open() {
    Expected<Settings> S = readSettings();
    if (!S)
      return S.takeError();
    if (Error E = loadTable(PassKind, S->Passes, embeddedPasses()).moveInto(Table))
      return E;
    // A policy decides in functions without an entry. It does not know what was tried.
    const bool OnlyListens = hasTrials(Stage::Passes) || isTrial();
    return PassPolicy::openCodeGenerator(*S, M, OnlyListens).moveInto(Advisor);
  }

private:
  bool runs(StringRef Asked, StringRef Unit) const override {
    return mayRun(Asked, Unit) && (!Before.isEnabled() || Before.shouldRunPass(Asked, Unit));
  }

  /// A function that the code generator came to.
  struct Entered {
    uint64_t Key = 0;
    bool Tried = false;                 // or there are no trials
    bool HasOptions = false;            // whether those of its plan were set
    const Overrides *Known = nullptr;   // in the table
    std::unique_ptr<OverridePlan> Plan; // none if all its passes run, or the policy decides
    bool ByPolicy = false;              // whether it is asked, or listens
  };

  bool mayRun(StringRef Asked, StringRef Unit) const {
    // Other loops, and modules, are left alone: their descriptions do not say whose they are.
    if (!Unit.consume_front("function (") || !Unit.consume_back(")"))
      return WithoutLoopReduce.empty() || Names.ofCodeGenerator(Asked).Argument != LoopReduce ||
             !isRunningOn(WithoutLoopReduce);
    const bool IsNext = Unit != LastName || !Last;
    if (!IsNext && Last->Tried && !Last->Plan && !Last->ByPolicy)
      return true;
    const PassName &Pass = Names.ofCodeGenerator(Asked);
    if (Pass.Argument == Outside)
      return true;
    if (IsNext) {
      const Function *F = M.getFunction(Unit);
      if (!F)
        return true;
      LastName = F->getName();
      Last = &enter(*F);
      Options.reset();
    }
    if (!(Last->Tried && Last->HasOptions) && (IsOneByOne || Pass.Argument.ends_with(Selection)))
      begin(*M.getFunction(Unit), *Last);
    if (Pass.Argument == FirstAfterFrame)
      if (MachineFunction *Code = CodeOf(*M.getFunction(Unit)))
        movePushedConstants(*Code);
    if (Last->Plan) {
      // Nobody wants to know how often the others asked.
      if (Last->Known && none_of(Last->Known->Passes, [&](const Override &O) { return O.Of == Pass.Number; }))
        return true;
      if (!Last->Plan->next(Pass.Number))
        return true;
      Last->Plan->record(0);
      return false;
    }
    if (!Last->ByPolicy)
      return true;
    const Function &F = *M.getFunction(Unit);
    return !Advisor->leavesOut(F, CodeOf(F), Pass.Argument);
  }

  Entered &enter(const Function &F) const {
    comeTo(F);
    auto [Found, IsNew] = Functions.try_emplace(&F);
    Entered &E = Found->second;
    if (!IsNew)
      return E;
    E.ByPolicy = Advisor && Advisor->enter(F);
    E.Tried = !hasTrials(Stage::Passes);
    if (!Table && E.Tried)
      return E;
    // Passes that ran by now may have touched the function, but these are always the same.
    E.Key = hashBody(F, Types);
    if ((E.Known = Table ? Table->find(E.Key) : nullptr))
      E.Plan = std::make_unique<OverridePlan>(E.Known->Passes, 0, 0);
    return E;
  }

  void begin(Function &F, Entered &E) const {
    if (!E.Tried)
      makeTrials(F, E);
    E.HasOptions = true;
    if (E.Plan)
      Options.set(F, *E.Plan);
    else if (E.ByPolicy)
      Options.set(F, [&](StringRef Name) { return Advisor->leavesOut(F, CodeOf(F), Name); });
  }

  void makeTrials(const Function &F, Entered &E) const {
    E.Tried = true;
    const auto Begin = [&](const Overrides &Base, const Trial &T) {
      std::vector<Override> Wanted = Base.Passes;
      for (const Override &O : toggled(T)) {
        const auto IsIt = [&](const Override &Other) { return Other.Of == O.Of && Other.Nth == O.Nth; };
        if (const auto Found = find_if(Wanted, IsIt); Found != Wanted.end())
          Wanted.erase(Found);
        else
          Wanted.push_back(O);
      }
      E.Known = nullptr;
      E.Plan = std::make_unique<OverridePlan>(Wanted, 0, 0);
      decideBy({nullptr, nullptr, E.Plan.get()});
    };
    runTrials({Stage::Passes, E.Key, F, [this, &F] { return CodeOf(F); }}, Begin);
  }

  Module &M;
  OptPassGate &Before;
  const std::function<MachineFunction *(const Function &)> CodeOf;
  const bool IsOneByOne; // code is generated function by function, from the first pass that asks to the last
  const StringSet<> WithoutLoopReduce; // as LLVM prints them
  std::optional<OverrideTable> Table;
  std::shared_ptr<PassPolicy> Advisor; // none without a policy and a log
  mutable FunctionOptions Options{CodeGeneratorOptions};
  mutable PassNames Names;
  mutable TypeHashes Types;
  mutable DenseMap<const Function *, Entered> Functions;
  mutable StringRef LastName;
  mutable Entered *Last = nullptr;
};

bool isWanted() {
  const std::optional<Settings> S = expectedToOptional(readSettings());
  return S && (S->hasPasses() || S->hasOptimizerPasses() || hasTrials(Stage::Passes) ||
               S->hasPolicy(Problem::PassSelection) || !S->of(Problem::PassSelection).Log.empty());
}

CodeGenerationListener Listener;

/// LLVM initializes this analysis before any pass of the code generator runs, and finalizes it after the last.
class Analysis final : public ProfileSummaryInfoWrapperPass {
  bool doInitialization(Module &M) override {
    LLVMContext &Ctx = M.getContext();
    Listener.Begin(M, /*HasGate=*/true);
    Before = &Ctx.getOptPassGate();
    Mine = std::make_unique<Gate>(M, *Before, [this](const Function &F) -> MachineFunction * {
      auto *Code = getAnalysisIfAvailable<MachineModuleInfoWrapperPass>();
      return Code ? Code->getMMI().getMachineFunction(F) : nullptr;
    });
    if (Error E = Mine->open())
      Ctx.emitError("mlgokit: " + toString(std::move(E)));
    else
      Ctx.setOptPassGate(*Mine);
    return ProfileSummaryInfoWrapperPass::doInitialization(M);
  }

  bool doFinalization(Module &M) override {
    leaveModule();
    M.getContext().setOptPassGate(*Before);
    Mine.reset();
    return ProfileSummaryInfoWrapperPass::doFinalization(M);
  }

  OptPassGate *Before = nullptr;
  std::unique_ptr<Gate> Mine;
};

class Listening final : public ProfileSummaryInfoWrapperPass {
  bool doInitialization(Module &M) override {
    Listener.Begin(M, /*HasGate=*/false);
    return ProfileSummaryInfoWrapperPass::doInitialization(M);
  }
};

PassInfo::NormalCtor_t Llvms = nullptr;

} // namespace

void registerPassGate(const CodeGenerationListener &Other) {
  Listener = Other;
  PassRegistry &Registry = *PassRegistry::getPassRegistry();
  initializeProfileSummaryInfoWrapperPassPass(Registry);
  auto *Info = const_cast<PassInfo *>(Registry.getPassInfo(&ProfileSummaryInfoWrapperPass::ID));
  Llvms = Info->getNormalCtor();
  Info->setNormalCtor([]() -> Pass * {
    if (isWanted())
      return new Analysis;
    return Listener.IsWaiting() ? new Listening : Llvms();
  });
}

} // namespace mlgokit
