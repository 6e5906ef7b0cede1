#include "regalloc/LoopGuesses.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/IR/Function.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr double LeastRuns = 0.05; // of a loop's header in a call of the function

} // namespace

bool hasUnlikelyLoop(const MachineFunction &MF, const MachineLoopInfo &Loops,
                     const MachineBlockFrequencyInfo &Frequencies) {
  return !MF.getFunction().hasProfileData() && any_of(Loops.getLoopsInPreorder(), [&](const MachineLoop *L) {
    return Frequencies.getBlockFreqRelativeToEntryBlock(L->getHeader()) < LeastRuns;
  });
}

} // namespace mlgokit
