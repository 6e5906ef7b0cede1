#include "inliner/BodyCounts.h"

#include "llvm/IR/CFG.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"

using namespace llvm;

namespace mlgokit {

namespace {

void countBlock(const BasicBlock &Block, BodyCounts &Counts) {
  for (const Instruction &I : Block) {
    ++Counts.Instructions;
    switch (I.getOpcode()) {
    case Instruction::Load:
      ++Counts.Loads;
      break;
    case Instruction::Store:
      ++Counts.Stores;
      break;
    case Instruction::Call:
      if (isa<DbgInfoIntrinsic>(I) || isa<PseudoProbeInst>(I)) {
        --Counts.Instructions;
        break;
      }
      [[fallthrough]];
    case Instruction::Invoke:
    case Instruction::CallBr: {
      const Function *Called = cast<CallBase>(I).getCalledFunction();
      Counts.DefinedCalls += Called && !Called->isIntrinsic() && !Called->isDeclaration();
      break;
    }
    default:
      break;
    }
  }
  ++Counts.Blocks;
  const Instruction *Last = Block.getTerminator();
  if (isa<SwitchInst>(Last) || (isa<BranchInst>(Last) && Last->getNumSuccessors() > 1))
    Counts.ConditionalBlocks += Last->getNumSuccessors();
}

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

BodyCounts countBody(const Function &F, BlockSet &Reached) {
  BodyCounts Counts;
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
  Counts.Uses = int64_t(F.getNumUses()) + !F.hasLocalLinkage();
  return Counts;
}

AnalysisKey BodyCountsAnalysis::Key;

BodyCounts BodyCountsAnalysis::run(Function &F, FunctionAnalysisManager &) {
  BlockSet Reached;
  return countBody(F, Reached);
}

} // namespace mlgokit
