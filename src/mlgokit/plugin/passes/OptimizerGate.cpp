// The gate of the optimizer.
//
// Every optional pass of the new pass manager asks the instrumentation of its pipeline whether it may run, on a module,
// a group of functions, a function or a loop; what LLVM requires never asks. Before the inliner begins, all passes run:
// keys of call sites are made of the bodies that it finds (docs/formats.md, "Keys of call sites").
#include "passes/OptimizerGate.h"

#include "identity/BodyHash.h"
#include "passes/FunctionOptions.h"
#include "passes/LoopReduce.h"
#include "passes/PassNames.h"
#include "passes/PassPolicy.h"
#include "passes/ProfileCounts.h"
#include "passes/TailCalls.h"
#include "shared/HotFunctions.h"
#include "shared/LastPass.h"
#include "shared/MinSize.h"
#include "shared/Settings.h"
#include "trials/OverrideTable.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Analysis/LazyCallGraph.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <memory>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

/// Stands for every question of a pass about a function, in place of the number of one.
constexpr uint16_t EachTime = UINT16_MAX;

/// Options as `CodeGeneratorOptions`, each with the pass that reads it: it may matter where that pass changes a
/// function. `OPTIONS` in tune/spaces/optimizer/step.py has the same.
constexpr std::pair<StringLiteral, StringLiteral> ReadBy[] = {
    {"-enable-pre=0", "GVNPass"},
    {"-instcombine-code-sinking=0", "InstCombinePass"},
    {"-two-entry-phi-node-folding-threshold=0", "SimplifyCFGPass"},
};

bool leavesOut(const Overrides *Known, StringRef Name) {
  return Known && any_of(Known->Passes, [&](const Override &O) { return O.Of == passNumber(Name); });
}

/// The function that a pass is about to run on; none for modules and for functions that call each other in circles.
const Function *subject(const Any &IR) {
  if (const auto *F = any_cast<const Function *>(&IR))
    return *F;
  if (const auto *L = any_cast<const Loop *>(&IR))
    return (*L)->getHeader()->getParent();
  if (const auto *C = any_cast<const LazyCallGraph::SCC *>(&IR))
    return (*C)->size() == 1 ? &(*C)->begin()->getFunction() : nullptr;
  return nullptr;
}

/// Answers for the pipeline of one module.
class OptimizerGate {
public:
  explicit OptimizerGate(PassInstrumentationCallbacks &Callbacks) : Callbacks(Callbacks) {}

  Error enter(Module &Entered, bool ByPolicy) {
    M = nullptr;
    Functions.clear();
    Last = nullptr;
    LeftOut.clear();
    Unchanged = 0;
    Options.reset();
    List.reset();
    Expected<Settings> S = readSettings();
    if (!S)
      return S.takeError();
    if (Error E = loadTable(PassKind, S->OptimizerPasses, embeddedOptimizerPasses()).moveInto(Table))
      return E;
    if (Error E = openList())
      return E;
    Advisor = nullptr;
    if (ByPolicy)
      if (Error E = openPolicy(*S, Entered))
        return E;
    if (!Table && !List && !Advisor)
      return Error::success();
    TypeHashes Types;
    InCircles = List || Advisor ? functionsInCircles(Entered) : StringSet<>();
    const StringSet<> Hot = hotFunctions(Entered, S->KeepHot);
    for (const Function &F : Entered) {
      if (F.isDeclaration() || Hot.contains(F.getName()))
        continue;
      const uint64_t Key = Table || List ? hashBody(F, Types) : 0;
      const Overrides *Known = Table ? Table->find(Key) : nullptr;
      if (!Known && !List && !Advisor)
        continue;
      Decided &D = Functions[F.getName()];
      D.Key = Key;
      D.Known = Known;
      if (Known)
        for (const Override &O : Known->Passes)
          LeftOut.insert(O.Of);
      D.LosesMinSize = leavesOut(Known, MinSize);
      D.LosesLoopReduce = leavesOut(Known, LoopReduce);
      D.IsUnchanged = D.LosesMinSize || D.LosesLoopReduce;
      Unchanged += D.IsUnchanged;
      D.HasOptions = any_of(make_first_range(ReadBy), [&](StringRef Name) { return leavesOut(Known, Name); });
      if (D.HasOptions && !Options)
        Options.emplace(make_first_range(ReadBy));
      if (List && F.getName().find_first_of("\r\n") == StringRef::npos)
        *List << "function " << toHex(Key) << ' ' << F.getName() << '\n'
              << (F.hasMinSize() && !D.LosesMinSize ? changedLine(Key, MinSize) : "");
    }
    if (Functions.empty())
      return Error::success();
    M = &Entered;
    // LLVM takes memory for every question to every callback.
    if (!std::exchange(IsAsked, true))
      Callbacks.registerShouldRunOptionalPassCallback(
          [this](StringRef Pass, const Any &IR) { return mayRun(Pass, IR); });
    return Error::success();
  }

  bool mayRun(StringRef Pass, const Any &IR) {
    Running.reset();
    if (!M)
      return true;
    // They hold for passes on one function, all of which ask.
    if (Options)
      Options->reset();
    const PassName *const Asking = Names.ofOptimizer(Pass);
    const bool IsLeftOut = Asking && LeftOut.contains(Asking->Number);
    if (!IsLeftOut && (!Asking || (!Unchanged && !Options && !List && !Advisor)))
      return true;
    const uint32_t Of = Asking->Number;
    const Function *F = subject(IR);
    if (!F || F->getParent() != M)
      return true;
    Decided *const Found = find(F->getName());
    if (!Found)
      return true;
    Decided &D = *Found;
    // Not before the inliner has made its keys, of which attributes are a part.
    if (std::exchange(D.IsUnchanged, false))
      change(*M->getFunction(F->getName()), D);
    if (List && any_cast<const Loop *>(&IR) && !std::exchange(D.HasLoops, true) && !D.LosesLoopReduce &&
        !is_contained(D.ByPolicy, passNumber(LoopReduce)))
      *List << changedLine(D.Key, LoopReduce);
    if (D.HasOptions)
      Options->set(D.Known->Passes);
    // By then the inliner is done with it. A policy decides in functions without an entry.
    if (Advisor && !D.Known && any_cast<const Function *>(&IR) && !std::exchange(D.IsDecided, true)) {
      D.ByPolicy = Advisor->leftOutOfOptimizer(*F);
      if (is_contained(D.ByPolicy, passNumber(LoopReduce)))
        leaveOutLoopReduce(*M->getFunction(F->getName()));
    }
    const bool MustRun = Pass == TailCallPass && (InCircles.contains(F->getName()) || endsByPointer(*F));
    if (!MustRun && is_contained(D.ByPolicy, Of))
      return false;
    if (!IsLeftOut && !List)
      return true;
    uint16_t &Asked = D.Asked[Of];
    const uint16_t Nth = Asked;
    Asked += Asked < EachTime - 1;
    if (D.Known)
      for (const Override &O : D.Known->Passes)
        if (O.Of == Of && (O.Nth == Nth || O.Nth == EachTime))
          return false;
    // What is not listed, nobody leaves out.
    if (List && !MustRun)
      Running = {&D, Nth};
    return true;
  }

  /// Notes a pass that changed what it ran on.
  void ran(StringRef Pass, bool Changed) {
    if (Running && Changed) {
      Decided &D = *Running->Of;
      *List << "changed " << toHex(D.Key) << ' ' << Pass << ' ' << Running->Nth << '\n';
      for (const auto &[Option, Reader] : ReadBy)
        if (Pass == Reader && !leavesOut(D.Known, Option) && D.Listed.insert(Option).second)
          *List << changedLine(D.Key, Option);
    }
    Running.reset();
    if (M && List && Pass == LastPass)
      listProfileCounts(*M, *List);
  }

private:
  struct Decided {
    uint64_t Key = 0;
    const Overrides *Known = nullptr;
    bool LosesMinSize = false;
    bool LosesLoopReduce = false;
    bool IsUnchanged = false; // but loses one of these
    bool HasLoops = false;
    bool HasOptions = false;
    StringSet<> Listed;             // options
    bool IsDecided = false;         // by the policy
    std::vector<uint32_t> ByPolicy; // what it leaves out
    SmallDenseMap<uint32_t, uint16_t, 8> Asked;
  };
  struct Question {
    Decided *Of;
    uint16_t Nth;
  };

  /// What is decided about a function. It goes by the name: a pass that changes a signature makes another function.
  Decided *find(StringRef Name) {
    if (!Last || Last->getKey() != Name) {
      auto Found = Functions.find(Name);
      if (Found == Functions.end())
        return nullptr;
      Last = &*Found;
    }
    return &Last->second;
  }

  void change(Function &F, const Decided &D) {
    if (D.LosesMinSize)
      F.removeFnAttr(Attribute::MinSize);
    if (D.LosesLoopReduce)
      leaveOutLoopReduce(F);
    --Unchanged;
  }

  static std::string changedLine(uint64_t Key, StringRef Name) {
    return ("changed " + toHex(Key) + " " + Name + " 0\n").str();
  }

  static std::string toHex(uint64_t Key) { return utohexstr(Key, /*LowerCase=*/true, /*Width=*/16); }

  Error openList() {
    const char *Path = listPath();
    if (!Path)
      return Error::success();
    std::error_code Code;
    List = std::make_unique<raw_fd_ostream>(Path, Code);
    if (!Code) {
      // A copy of the compiler ends without the destructors.
      List->SetUnbuffered();
      return Error::success();
    }
    List.reset();
    return createStringError(Code, std::string("list of passes ") + Path + ": " + Code.message());
  }

  Error openPolicy(const Settings &S, const Module &Entered) {
    Expected<std::shared_ptr<PassPolicy>> Opened = PassPolicy::openOptimizer(S, Entered);
    if (!Opened)
      return Opened.takeError();
    if (*Opened && (*Opened)->hearsOptimizer())
      Advisor = std::move(*Opened);
    return Error::success();
  }

  PassInstrumentationCallbacks &Callbacks;
  bool IsAsked = false;
  Module *M = nullptr;
  std::optional<OverrideTable> Table;
  std::shared_ptr<PassPolicy> Advisor; // none if nobody hears what the optimizer asks
  StringMap<Decided> Functions;
  StringMapEntry<Decided> *Last = nullptr; // that was asked about
  DenseSet<uint64_t> LeftOut;              // passes, in some function; of 64 bits, as two numbers of a set are its own
  StringSet<> InCircles;                   // functions by their calls
  std::optional<FunctionOptions> Options;  // none if no function has some
  unsigned Unchanged = 0;                  // functions that are to lose an attribute or a pass of the code generator
  PassNames Names;
  std::unique_ptr<raw_fd_ostream> List;
  std::optional<Question> Running; // of the pass that began last, if it is to be listed
};

/// That of the pipeline which runs; registration and pipeline run on one thread, also in parallel ThinLTO.
thread_local std::weak_ptr<OptimizerGate> Current;

/// Whether a list may be wanted: a resident compiler learns only with a request what is.
bool mayList() { return listPath() || std::getenv("MLGOKIT_RESIDENT"); }

bool isWanted() {
  if (mayList())
    return true;
  const std::optional<Settings> S = expectedToOptional(readSettings());
  return S && (S->hasOptimizerPasses() || S->hasPolicy(Problem::PassSelection) ||
               !S->of(Problem::PassSelection).Log.empty());
}

} // namespace

const char *listPath() {
  const char *Path = std::getenv("MLGOKIT_CHANGED");
  return Path && *Path ? Path : nullptr;
}

void registerOptimizerGate(PassBuilder &Builder) {
  Current.reset();
  PassInstrumentationCallbacks *Callbacks = Builder.getPassInstrumentationCallbacks();
  if (!Callbacks || !isWanted())
    return;
  auto Gate = std::make_shared<OptimizerGate>(*Callbacks);
  Current = Gate;
  // The callbacks own the gate; this one is hardly ever called.
  Callbacks->registerBeforeSkippedPassCallback([Gate](StringRef, const Any &) {});
  if (!mayList())
    return;
  Callbacks->registerAfterPassCallback(
      [Gate](StringRef Pass, const Any &, const PreservedAnalyses &Kept) { Gate->ran(Pass, !Kept.areAllPreserved()); });
  Callbacks->registerAfterPassInvalidatedCallback(
      [Gate](StringRef Pass, const PreservedAnalyses &) { Gate->ran(Pass, true); });
}

void enterOptimizerGate(Module &M, bool ByPolicy) {
  if (const std::shared_ptr<OptimizerGate> Gate = Current.lock())
    if (Error E = Gate->enter(M, ByPolicy))
      M.getContext().emitError("mlgokit: " + toString(std::move(E)));
}

} // namespace mlgokit
