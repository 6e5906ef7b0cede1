// The advisors of the greedy register allocator, in front of LLVM's own.
#ifndef MLGOKIT_REGALLOC_H
#define MLGOKIT_REGALLOC_H

#include "Settings.h"

#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"

namespace mlgokit {

/// Put the plugin's analyses in the place of LLVM's. They stand aside when nobody gave them a policy.
void registerEvictionAdvisor();
void registerPriorityAdvisor();

/// Whether the plugin's analysis for \p P is the one to make: also in order to say what is wrong with the settings.
inline bool isWanted(Problem P) {
  llvm::Expected<Settings> S = readSettings();
  if (S)
    return S->hasPolicy(P) || !S->of(P).Log.empty();
  llvm::consumeError(S.takeError());
  return true;
}

/// Makes \p Ours the constructor of a registered analysis, and gives the one that it had.
inline llvm::PassInfo::NormalCtor_t replaceConstructor(llvm::PassRegistry &Registry, char &ID,
                                                       llvm::PassInfo::NormalCtor_t Ours) {
  auto *Info = const_cast<llvm::PassInfo *>(Registry.getPassInfo(&ID));
  const llvm::PassInfo::NormalCtor_t Before = Info->getNormalCtor();
  Info->setNormalCtor(Ours);
  return Before;
}

} // namespace mlgokit

#endif
