#include "shared/Executed.h"

#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineBranchProbabilityInfo.h"
#include "llvm/CodeGen/MachineDominators.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineLoopInfo.h"

using namespace llvm;

namespace mlgokit {

double executedInstructions(MachineFunction &MF) {
  MachineDominatorTree Dominators(MF);
  MachineLoopInfo Loops(Dominators);
  MachineBranchProbabilityInfo Branches;
  const MachineBlockFrequencyInfo Frequencies(MF, Branches, Loops);
  double Executed = 0;
  for (const MachineBasicBlock &B : MF) {
    size_t Count = 0;
    for (const MachineInstr &I : B)
      Count += !I.isMetaInstruction();
    Executed += Frequencies.getBlockFreqRelativeToEntryBlock(&B) * double(Count);
  }
  return Executed;
}

} // namespace mlgokit
