// What the analyses of evictions and of priorities have in common: when they are made in place of LLVM's.
#ifndef MLGOKIT_REGALLOC_REGALLOCANALYSIS_H
#define MLGOKIT_REGALLOC_REGALLOCANALYSIS_H

#include "shared/Settings.h"
#include "trials/Trials.h"

#include "llvm/Pass.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"

#include <optional>

namespace mlgokit {

/// Whether the plugin's analysis for \p P is the one to make: also in order to say what is wrong with the settings.
inline bool isWanted(Problem P) {
  const std::optional<Settings> S = llvm::expectedToOptional(readSettings());
  return !S || S->hasPolicy(P) || !S->of(P).Log.empty() || S->hasAllocations() || hasTrials(Stage::Registers);
}

/// Puts \p Ours in the place of LLVM's registered analysis, which is still the one to make when no \p P has a policy.
template <class Ours, Problem... P> void replaceAnalysis() {
  static llvm::PassInfo::NormalCtor_t Llvms = nullptr;
  auto *Info = const_cast<llvm::PassInfo *>(llvm::PassRegistry::getPassRegistry()->getPassInfo(&Ours::ID));
  Llvms = Info->getNormalCtor();
  Info->setNormalCtor([]() -> llvm::Pass * { return (isWanted(P) || ...) ? new Ours : Llvms(); });
}

} // namespace mlgokit

#endif
