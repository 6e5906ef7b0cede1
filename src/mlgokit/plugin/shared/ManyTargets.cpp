#include "shared/ManyTargets.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"

#include <cstddef>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr size_t LeastTargets = 4;    // from so many cases on LLVM makes tables of them
constexpr size_t BlocksPerTarget = 2; // with more, most of the code is not what is jumped to

/// How many blocks are targets of jumps that are computed.
size_t countTargets(const Function &F) {
  SmallPtrSet<const BasicBlock *, 16> Targets;
  for (const BasicBlock &B : F) {
    if (isa<IndirectBrInst>(B.getTerminator()))
      Targets.insert(succ_begin(&B), succ_end(&B));
    else if (const auto *Switch = dyn_cast<SwitchInst>(B.getTerminator()))
      for (const auto &Case : Switch->cases())
        Targets.insert(Case.getCaseSuccessor());
  }
  return Targets.size();
}

} // namespace

bool hasTargets(const Function &F) { return countTargets(F) >= LeastTargets; }

bool hasManyTargets(const Function &F) {
  const size_t Targets = countTargets(F);
  return Targets >= LeastTargets && Targets * BlocksPerTarget >= F.size();
}

} // namespace mlgokit
