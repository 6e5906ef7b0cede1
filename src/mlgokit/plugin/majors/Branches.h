// Instructions that branch: since 23 those with a condition are instructions of their own.
#ifndef MLGOKIT_MAJORS_BRANCHES_H
#define MLGOKIT_MAJORS_BRANCHES_H

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Instructions.h"

namespace mlgokit {

inline bool isConditionalBranch(const llvm::Instruction &I) {
#if LLVM_VERSION_MAJOR >= 23
  return llvm::isa<llvm::CondBrInst>(I);
#else
  const auto *Branch = llvm::dyn_cast<llvm::BranchInst>(&I);
  return Branch && Branch->isConditional();
#endif
}

} // namespace mlgokit

#endif
