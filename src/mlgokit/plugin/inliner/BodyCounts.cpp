#include "inliner/BodyCounts.h"

#include "majors/Branches.h"
#include "majors/FunctionProperties.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace mlgokit {

namespace {

void countBlock(const BasicBlock &Block, BodyCounts &Counts, int64_t Sign = 1) {
  for (const Instruction &I : Block) {
    Counts.Instructions += Sign;
    switch (I.getOpcode()) {
    case Instruction::Load:
      Counts.Loads += Sign;
      break;
    case Instruction::Store:
      Counts.Stores += Sign;
      break;
    case Instruction::Call:
      if (isa<DbgInfoIntrinsic>(I) || isa<PseudoProbeInst>(I)) {
        Counts.Instructions -= Sign;
        break;
      }
      [[fallthrough]];
    case Instruction::Invoke:
    case Instruction::CallBr: {
      const Function *Called = cast<CallBase>(I).getCalledFunction();
      if (Called && !Called->isIntrinsic() && !Called->isDeclaration())
        Counts.DefinedCalls += Sign;
      break;
    }
    default:
      break;
    }
  }
  Counts.Blocks += Sign;
  const Instruction *Last = Block.getTerminator();
  if (isa<SwitchInst>(Last) || isConditionalBranch(*Last))
    Counts.ConditionalBlocks += Sign * Last->getNumSuccessors();
}

/// \p First, and what can be reached from it, up to and with blocks of \p Border.
template <class Blocks> BlockSet blocksFrom(const BasicBlock &First, const Blocks &Border) {
  BlockSet Seen{&First};
  SmallVector<const BasicBlock *, 32> Left{&First};
  while (!Left.empty()) {
    const BasicBlock *Block = Left.pop_back_val();
    if (!Border.contains(Block))
      for (const BasicBlock *Next : successors(Block))
        if (Seen.insert(Next).second)
          Left.push_back(Next);
  }
  return Seen;
}

} // namespace

int64_t countUses(const Function &F) { return int64_t(F.getNumUses()) + !F.hasLocalLinkage(); }

BodyCounts BodyCounts::of(const FunctionPropertiesInfo &Info) {
  return {Info.BasicBlockCount,
          Info.BlocksReachedFromConditionalInstruction,
          Info.Uses,
          Info.DirectCallsToDefinedFunctions,
          Info.LoadInstCount,
          Info.StoreInstCount,
          Info.TotalInstructionCount};
}

BodyCounts CallerCounter::count(const Function &F) {
  Counts = BodyCounts();
  Site = nullptr;
  Counted = &F;
  Reached = blocksFrom(F.getEntryBlock(), BlockSet());
  for (const BasicBlock *Block : Reached)
    countBlock(*Block, Counts);
  Counts.Uses = countUses(F);
  return Counts;
}

/// Inlining changes the block of the call; the first block, to which allocas are moved; and the blocks behind the call,
/// where values meet. The landing pad of an invoke may be cut in two, so that what is behind it counts too. LLVM's
/// FunctionPropertiesUpdater goes by the same blocks.
void CallerCounter::beforeInlining(const CallBase &Call) {
  Site = Call.getParent();
  Border.clear();
  Border.insert(succ_begin(Site), succ_end(Site));
  Changing = Border;
  Changing.insert(Site);
  Changing.insert(&Counted->getEntryBlock());
  if (const auto *Invoke = dyn_cast<InvokeInst>(&Call)) {
    const BasicBlock *Pad = Invoke->getUnwindDest();
    Border.insert(succ_begin(Pad), succ_end(Pad));
    Changing.insert(succ_begin(Pad), succ_end(Pad));
    Border.erase(Pad);
  }
  Border.erase(Site);
  Users.clear();
  if (CountsUsersAnew)
    for (const User *U : Call.users())
      Users.insert(cast<Instruction>(U)->getParent());
  Users.erase(Site);
  Rest = Counts;
  for (const BasicBlock *Block : Changing)
    countBlock(*Block, Rest, -1);
  for (const BasicBlock *Block : Users)
    if (!Changing.contains(Block))
      countBlock(*Block, Rest, -1);
}

/// As LLVM's FunctionPropertiesUpdater does: what inlining changed of other blocks is not counted, until they are among
/// those that the inlining of another call may change.
BodyCounts CallerCounter::afterInlining(const Function &F) {
  if (Counted != &F || !Site)
    return count(F);
  const BasicBlock *First = &F.getEntryBlock();
  Counts = Rest;
  BlockSet Known = Users; // counted whatever comes from the call
  Known.insert(First);
  Known.erase(Site);
  BlockSet Inlined = blocksFrom(*Site, Border);
  const auto IsLost = [&](const BasicBlock *Block) { return Block != First && !Inlined.contains(Block); };
  // What the call led to may not be reached any more, or from elsewhere only.
  if (any_of(Changing, IsLost)) {
    Reached = blocksFrom(*First, BlockSet());
    SmallVector<const BasicBlock *, 8> Lost;
    for (const BasicBlock *Block : Changing)
      if (!Reached.contains(Block))
        Lost.push_back(Block);
      else if (Block != Site)
        Known.insert(Block);
    Inlined = blocksFrom(*Site, Known);
    loseBehind(Lost);
  } else {
    Reached.insert(Inlined.begin(), Inlined.end());
  }
  for (const BasicBlock *Block : Inlined)
    if (!Known.contains(Block))
      countBlock(*Block, Counts);
  for (const BasicBlock *Block : Known)
    countBlock(*Block, Counts);
  Site = nullptr;
  Counts.Uses = countUses(F);
  return Counts;
}

/// Blocks that were reached through those of \p Lost alone count no more; these are not in Counts.
void CallerCounter::loseBehind(ArrayRef<const BasicBlock *> Lost) {
  BlockSet Seen(Lost.begin(), Lost.end());
  SmallVector<const BasicBlock *, 8> Left(Lost);
  while (!Left.empty())
    for (const BasicBlock *Next : successors(Left.pop_back_val()))
      if (!Reached.contains(Next) && Seen.insert(Next).second) {
        countBlock(*Next, Counts, -1);
        Left.push_back(Next);
      }
}

AnalysisKey BodyCountsAnalysis::Key;

BodyCounts BodyCountsAnalysis::run(Function &F, FunctionAnalysisManager &) { return CallerCounter().count(F); }

} // namespace mlgokit
