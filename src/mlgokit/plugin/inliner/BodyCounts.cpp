#include "inliner/BodyCounts.h"

#include "majors/Branches.h"

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

int64_t countUses(const Function &F) { return int64_t(F.getNumUses()) + !F.hasLocalLinkage(); }

} // namespace

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
  Reached.clear();
  SmallVector<const BasicBlock *, 32> Left{&F.getEntryBlock()};
  Reached.insert(&F.getEntryBlock());
  while (!Left.empty()) {
    const BasicBlock &Block = *Left.pop_back_val();
    countBlock(Block, Counts);
    for (const BasicBlock *Next : successors(&Block))
      if (Reached.insert(Next).second)
        Left.push_back(Next);
  }
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
  Rest = Counts;
  for (const BasicBlock *Block : Changing)
    countBlock(*Block, Rest, -1);
}

BodyCounts CallerCounter::afterInlining(const Function &F) {
  if (Counted != &F || !Site)
    return count(F);
  Counts = Rest;
  BlockSet Seen{Site};
  SmallVector<const BasicBlock *, 32> Left{Site};
  while (!Left.empty()) {
    const BasicBlock &Block = *Left.pop_back_val();
    countBlock(Block, Counts);
    if (!Border.contains(&Block))
      for (const BasicBlock *Next : successors(&Block))
        if (Seen.insert(Next).second)
          Left.push_back(Next);
  }
  const BasicBlock &First = F.getEntryBlock();
  if (Seen.insert(&First).second)
    countBlock(First, Counts);
  // What the call led to may not be reached any more, or from elsewhere only.
  if (any_of(Changing, [&](const BasicBlock *Block) { return !Seen.contains(Block); }))
    return count(F);
  Reached.insert(Seen.begin(), Seen.end());
  Site = nullptr;
  Counts.Uses = countUses(F);
  return Counts;
}

AnalysisKey BodyCountsAnalysis::Key;

BodyCounts BodyCountsAnalysis::run(Function &F, FunctionAnalysisManager &) { return CallerCounter().count(F); }

} // namespace mlgokit
