#include "shared/ManyTargets.h"

#include "llvm/IR/BasicBlock.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"

#include <cstdint>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr uint64_t LeastCases = 4; // from so many on LLVM makes tables of them

} // namespace

bool hasManyTargets(const Function &F) {
  uint64_t Cases = 0;
  for (const BasicBlock &B : F) {
    if (isa<IndirectBrInst>(B.getTerminator()))
      return true;
    if (const auto *Switch = dyn_cast<SwitchInst>(B.getTerminator()))
      Cases += Switch->getNumCases();
  }
  return Cases >= LeastCases;
}

} // namespace mlgokit
