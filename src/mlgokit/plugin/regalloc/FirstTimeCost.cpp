// What the first use of a callee-saved register costs in a function, as far as a policy of spill weights says, and in
// which functions such a policy is not to be believed.
//
// LLVM has one number for it, an option that the allocator reads as it comes to a function, before it asks for
// advisors. So it is set by the analysis that runs last before that and for nobody else: of spill slots.
#include "majors/FirstTimeCostOption.h"
#include "majors/SpillSlots.h"
#include "regalloc/LoopGuesses.h"
#include "regalloc/RangeDecider.h"
#include "regalloc/RegAlloc.h"
#include "regalloc/RegAllocAnalysis.h"
#include "shared/Files.h"
#include "shared/Settings.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/IR/Module.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/CommandLine.h"

#include <mutex>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

/// LLVM's option; null if it is not there, or a user has set it. Looked for once, before any function has set it.
CostOption *findOption() {
  static CostOption *const Found = [] {
    constexpr StringRef Name = "regalloc-csr-first-time-cost";
    return isGiven(Name) ? nullptr : static_cast<CostOption *>(cl::getRegisteredOptions().lookup(Name));
  }();
  return Found;
}

bool isByPolicy(const Settings &S) {
  const StringRef Named = S.of(Problem::RegallocWeight).Policy;
  return S.hasPolicy(Problem::RegallocWeight) && !Named.starts_with(":");
}

/// The option is the process's: of threads that generate code, as those of ThinLTO in a linker and of rustc, one comes
/// to the allocator after the other.
std::mutex OneAtATime;

/// The turn of a thread, in which the option has the value for its function. It ends when the allocator asks for
/// advisors. That of x86 runs for tile registers first, so a function with any has LLVM's value for the others.
class Turn {
public:
  ~Turn() { end(); }

  void begin(CostOption &For, std::optional<unsigned> Cost) {
    if (!Lock.owns_lock()) {
      Lock = std::unique_lock(OneAtATime);
      Option = &For;
      Llvms = For.getValue();
    }
    setFirstTimeCost(For, Cost, Llvms);
  }

  void end() {
    if (!Lock.owns_lock())
      return;
    setFirstTimeCost(*Option, std::nullopt, Llvms);
    Lock.unlock();
  }

private:
  std::unique_lock<std::mutex> Lock;
  CostOption *Option = nullptr;
  unsigned Llvms = 0;
};
thread_local Turn Mine;

/// The function that this thread is at, if a policy stands aside in it.
thread_local const MachineFunction *Doubted = nullptr;

class Analysis final : public SpillSlots {
  void getAnalysisUsage(AnalysisUsage &AU) const override {
    AU.addRequired<MachineBlockFrequencyInfoWrapperPass>();
    AU.addRequired<MachineLoopInfoWrapperPass>();
    SpillSlots::getAnalysisUsage(AU);
  }

  bool doInitialization(Module &M) override {
    // The advisor says what is wrong with the settings or the policy.
    const std::optional<Settings> S = expectedToOptional(readSettings());
    if (S && isByPolicy(*S))
      P = expectedToOptional(loadPolicy(Problem::RegallocWeight, *S, M));
    if (P && P->csrFirstTimeCost()) {
      Option = findOption();
      IsFor = P->isFor(M);
    } else {
      P.reset();
    }
    return SpillSlots::doInitialization(M);
  }

  bool runOnMachineFunction(MachineFunction &MF) override {
    const bool Changed = SpillSlots::runOnMachineFunction(MF);
    if (!P)
      return Changed;
    const bool HasDoubt = hasUnlikelyLoop(MF, getAnalysis<MachineLoopInfoWrapperPass>().getLI(),
                                          getAnalysis<MachineBlockFrequencyInfoWrapperPass>().getMBFI());
    Doubted = HasDoubt ? &MF : nullptr;
    if (Option)
      Mine.begin(*Option, IsFor && !isClosedIn(*P, MF) ? std::optional(P->csrFirstTimeCost()) : std::nullopt);
    return Changed;
  }

  /// Functions without virtual registers never come to the advisors.
  void releaseMemory() override {
    Mine.end();
    Doubted = nullptr;
    SpillSlots::releaseMemory();
  }

  std::optional<Policy> P;      // none if it does not say
  bool IsFor = false;           // whether it is for this module
  CostOption *Option = nullptr; // null if it is not ours to set
};

} // namespace

bool isDoubted(const MachineFunction &MF) { return Doubted == &MF; }

void leaveFirstTimeCost() { Mine.end(); }

void registerFirstTimeCost() {
  initializeSpillSlots(*PassRegistry::getPassRegistry());
  replaceAnalysis<Analysis, Problem::RegallocWeight>();
}

} // namespace mlgokit
