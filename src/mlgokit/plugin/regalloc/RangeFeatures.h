// What a policy of priorities or of weights is told of a live range, beside LLVM's own three features.
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

/// The name of the feature that says whether a function is compiled for minimal size.
inline constexpr llvm::StringLiteral LevelFeature("is_minsize");
bool isForSize(const llvm::MachineFunction &MF);

/// The names, in the order of observeRange.
llvm::ArrayRef<llvm::StringRef> rangeFeatureNames();

/// What is so of \p Range as it asks, into \p Found; \p Heuristic is the priority that LLVM would give it.
void observeRange(const llvm::MachineFunction &MF, const llvm::SlotIndexes &Indexes, const llvm::LiveInterval &Range,
                  unsigned Heuristic, llvm::MutableArrayRef<float> Found);

} // namespace mlgokit

#endif
