#include "shared/HotFunctions.h"

#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/BranchProbabilityInfo.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Analysis/ProfileSummaryInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr double PerPercent = 10000; // of LLVM's cutoffs, which are parts of a million

bool isHot(const Function &F, ProfileSummaryInfo &Summary, double Percent) {
  if (F.isDeclaration() || !F.hasProfileData())
    return false;
  // Both are asked where LLVM's own analyses may be gone or stale: before the inliner changes anything, and in code
  // generation. A dominator tree does not change what it is made of.
  DominatorTree Dominators(const_cast<Function &>(F));
  LoopInfo Loops(Dominators);
  BranchProbabilityInfo Probabilities(F, Loops);
  BlockFrequencyInfo Frequencies(F, Probabilities, Loops);
  return Summary.isFunctionHotInCallGraphNthPercentile(int(Percent * PerPercent), &F, Frequencies);
}

} // namespace

bool isHot(const Function &F, double Percent) {
  if (!(Percent > 0))
    return false;
  ProfileSummaryInfo Summary(*F.getParent());
  return Summary.hasProfileSummary() && isHot(F, Summary, Percent);
}

StringSet<> hotFunctions(const Module &M, double Percent) {
  StringSet<> Names;
  ProfileSummaryInfo Summary(M);
  if (Percent > 0 && Summary.hasProfileSummary())
    for (const Function &F : M)
      if (isHot(F, Summary, Percent))
        Names.insert(F.getName());
  return Names;
}

} // namespace mlgokit
