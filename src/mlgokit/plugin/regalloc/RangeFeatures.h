// What a policy of priorities is told of a live range, beside LLVM's own three features.
#ifndef MLGOKIT_REGALLOC_RANGEFEATURES_H
#define MLGOKIT_REGALLOC_RANGEFEATURES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

namespace llvm {
class LiveInterval;
class MachineFunction;
class SlotIndexes;
} // namespace llvm

namespace mlgokit {

/// The names, in the order of observeRange.
llvm::ArrayRef<llvm::StringRef> rangeFeatureNames();

/// What is so of \p Range as it asks, into \p Found; \p Heuristic is the priority that LLVM would give it.
void observeRange(const llvm::MachineFunction &MF, const llvm::SlotIndexes &Indexes, const llvm::LiveInterval &Range,
                  unsigned Heuristic, llvm::MutableArrayRef<float> Found);

} // namespace mlgokit

#endif
