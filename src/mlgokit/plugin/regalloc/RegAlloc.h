// What the plugin changes of the greedy register allocator.
#ifndef MLGOKIT_REGALLOC_REGALLOC_H
#define MLGOKIT_REGALLOC_REGALLOC_H

namespace llvm {
class MachineFunction;
class TargetPassConfig;
} // namespace llvm

namespace mlgokit {

/// Put the plugin's analyses in the place of LLVM's. They stand aside when nobody gave them a policy.
void registerEvictionAdvisor();
void registerPriorityAdvisor();
void registerFirstTimeCost();
void registerScoring();

/// Whether this LLVM has its score of allocations: a clang that is linked statically may lack it.
bool hasScores();
/// Lets logs that are wanted have the scores of allocations, in the code generator that \p Config makes. The analyses
/// of evictions and of priorities both ask.
void insertScoring(llvm::TargetPassConfig *Config, bool ForEvictions);

/// Says that the allocator has read what a callee-saved register costs in the function that this thread is at.
void leaveFirstTimeCost();

/// Whether a policy that says what callee-saved registers cost stands aside in \p MF, which this thread is at.
bool isDoubted(const llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
