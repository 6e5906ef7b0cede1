// What the first use of a callee-saved register costs in a function, as far as a policy of spill weights says.
//
// LLVM has one number for it, an option that the allocator reads as it comes to a function, before it asks for
// advisors. So it is set by the analysis that runs last before that and for nobody else: of spill slots.
#include "regalloc/RangeDecider.h"
#include "regalloc/RegAlloc.h"
#include "shared/Files.h"
#include "shared/Settings.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/CodeGen/LiveStacks.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/CommandLine.h"

#include <optional>

#include <sys/syscall.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

#if LLVM_VERSION_MAJOR >= 22
using SpillSlots = LiveStacksWrapperLegacy;
#else
using SpillSlots = LiveStacks;
#endif

/// LLVM's option; null if it is not there, or a user has set it.
cl::opt<unsigned> *findOption() {
  cl::Option *Found = cl::getRegisteredOptions().lookup("regalloc-csr-first-time-cost");
  return Found && !Found->getNumOccurrences() ? static_cast<cl::opt<unsigned> *>(Found) : nullptr;
}

/// The option is the process's: where other threads generate code, what they get would be a matter of luck.
bool isMainThread() { return syscall(SYS_gettid) == getpid(); }

bool isByPolicy(const Settings &S) {
  const StringRef Named = S.of(Problem::RegallocWeight).Policy;
  return S.hasPolicy(Problem::RegallocWeight) && !Named.starts_with(":");
}

class Analysis final : public SpillSlots {
  bool doInitialization(Module &M) override {
    Expected<Settings> S = readSettings();
    if (S && isByPolicy(*S) && isMainThread()) {
      Expected<Policy> Loaded = loadPolicy(Problem::RegallocWeight, *S);
      if (Loaded && Loaded->csrFirstTimeCost() && Loaded->isFor(M) && (Option = findOption())) {
        Llvms = Option->getValue();
        P.emplace(std::move(*Loaded));
      }
      // The advisor says what is wrong with it, as with the settings.
      consumeError(Loaded.takeError());
    }
    consumeError(S.takeError());
    return SpillSlots::doInitialization(M);
  }

  bool runOnMachineFunction(MachineFunction &MF) override {
    if (P)
      Option->setValue(isClosedIn(*P, MF) ? Llvms : P->csrFirstTimeCost());
    return SpillSlots::runOnMachineFunction(MF);
  }

  bool doFinalization(Module &M) override {
    if (P)
      Option->setValue(Llvms);
    return SpillSlots::doFinalization(M);
  }

  std::optional<Policy> P; // none if it does not say, or not for this module
  cl::opt<unsigned> *Option = nullptr;
  unsigned Llvms = 0;
};

PassInfo::NormalCtor_t MakeLlvms = nullptr;

} // namespace

void registerFirstTimeCost() {
  PassRegistry &Registry = *PassRegistry::getPassRegistry();
#if LLVM_VERSION_MAJOR >= 22
  initializeLiveStacksWrapperLegacyPass(Registry);
#else
  initializeLiveStacksPass(Registry);
#endif
  auto *Info = const_cast<PassInfo *>(Registry.getPassInfo(&SpillSlots::ID));
  MakeLlvms = Info->getNormalCtor();
  Info->setNormalCtor([]() -> Pass * {
    Expected<Settings> S = readSettings();
    if (S && isByPolicy(*S))
      return new Analysis;
    consumeError(S.takeError());
    return MakeLlvms();
  });
}

} // namespace mlgokit
