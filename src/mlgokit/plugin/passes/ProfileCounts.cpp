#include "passes/ProfileCounts.h"

#include "llvm/ADT/MapVector.h"
#include "llvm/Analysis/BlockFrequencyInfo.h"
#include "llvm/Analysis/BranchProbabilityInfo.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

bool isListable(const Function &F) { return F.getName().find_first_of("\r\n") == StringRef::npos; }

void listCounts(Function &F, raw_ostream &List) {
  DominatorTree Dominators(F);
  LoopInfo Loops(Dominators);
  BranchProbabilityInfo Branches(F, Loops);
  const BlockFrequencyInfo Frequencies(F, Branches, Loops);
  const std::optional<uint64_t> Entries = Frequencies.getBlockProfileCount(&F.getEntryBlock());
  if (!Entries)
    return;
  List << "entries " << *Entries << ' ' << F.getName() << '\n';
  MapVector<const Function *, uint64_t> Calls;
  for (const BasicBlock &B : F)
    for (const Instruction &I : B)
      if (const auto *Call = dyn_cast<CallBase>(&I))
        if (const Function *Callee = Call->getCalledFunction(); Callee && !Callee->isIntrinsic() && isListable(*Callee))
          Calls[Callee] += Frequencies.getBlockProfileCount(&B).value_or(0);
  for (const auto &[Callee, Count] : Calls)
    List << "calls " << Count << ' ' << Callee->getName() << '\n';
}

} // namespace

void listProfileCounts(Module &M, raw_ostream &List) {
  for (Function &F : M)
    if (!F.isDeclarationForLinker() && isListable(F) && F.hasProfileData())
      listCounts(F, List);
}

} // namespace mlgokit
