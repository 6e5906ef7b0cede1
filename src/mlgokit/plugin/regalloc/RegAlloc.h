// The advisors of the greedy register allocator, in front of LLVM's own.
#ifndef MLGOKIT_REGALLOC_REGALLOC_H
#define MLGOKIT_REGALLOC_REGALLOC_H

namespace mlgokit {

/// Put the plugin's analyses in the place of LLVM's. They stand aside when nobody gave them a policy.
void registerEvictionAdvisor();
void registerPriorityAdvisor();

} // namespace mlgokit

#endif
