// How often LLVM guesses that the loops of a function run, and whether that can be.
#ifndef MLGOKIT_REGALLOC_LOOPGUESSES_H
#define MLGOKIT_REGALLOC_LOOPGUESSES_H

namespace llvm {
class MachineBlockFrequencyInfo;
class MachineFunction;
class MachineLoopInfo;
} // namespace llvm

namespace mlgokit {

/// Whether a loop of \p MF is guessed to run much less often than the function, and no profile says so. Behind the many
/// exits of a state machine LLVM guesses that of loops in which a program spends its time, as in bzip2's decompressor.
bool hasUnlikelyLoop(const llvm::MachineFunction &MF, const llvm::MachineLoopInfo &Loops,
                     const llvm::MachineBlockFrequencyInfo &Frequencies);

} // namespace mlgokit

#endif
