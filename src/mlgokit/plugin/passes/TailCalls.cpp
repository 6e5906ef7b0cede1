#include "passes/TailCalls.h"

#include "llvm/ADT/SCCIterator.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Analysis/CallGraph.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Whether nothing comes after \p B but the return.
bool isLast(const BasicBlock &B) {
  if (isa<ReturnInst>(B.getTerminator()))
    return true;
  const BasicBlock *Next = B.getSingleSuccessor();
  return Next && isa<ReturnInst>(Next->getFirstNonPHIOrDbg());
}

bool blockEndsByPointer(const BasicBlock &B) {
  if (!isLast(B))
    return false;
  for (const Instruction &I : drop_begin(reverse(B))) {
    if (isa<IntrinsicInst>(I))
      continue;
    if (const auto *Call = dyn_cast<CallInst>(&I))
      return Call->isIndirectCall();
    if (I.mayHaveSideEffects())
      return false;
  }
  return false;
}

} // namespace

StringSet<> functionsInCircles(const Module &M) {
  StringSet<> Found;
  // It changes nothing in the module.
  CallGraph Calls(const_cast<Module &>(M));
  for (auto Group = scc_begin(&Calls); !Group.isAtEnd(); ++Group)
    if (Group.hasCycle())
      for (const CallGraphNode *Node : *Group)
        if (const Function *F = Node->getFunction())
          Found.insert(F->getName());
  return Found;
}

bool endsByPointer(const Function &F) { return any_of(F, blockEndsByPointer); }

} // namespace mlgokit
