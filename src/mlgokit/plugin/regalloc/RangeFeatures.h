// What a policy of priorities or of weights is told of a live range, beside LLVM's own three features.
#ifndef MLGOKIT_REGALLOC_RANGEFEATURES_H
#define MLGOKIT_REGALLOC_RANGEFEATURES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/CodeGen/SlotIndexes.h"

#include <vector>

namespace llvm {
class LiveInterval;
class MachineFunction;
} // namespace llvm

namespace mlgokit {

/// The name of the feature that says whether a function is compiled for minimal size.
inline constexpr llvm::StringLiteral LevelFeature("is_minsize");

/// The names, in the order of observeRange.
llvm::ArrayRef<llvm::StringRef> rangeFeatureNames();

/// Observes live ranges of one function.
class RangeObserver {
public:
  RangeObserver(const llvm::MachineFunction &MF, const llvm::SlotIndexes &Indexes) : MF(MF), Indexes(Indexes) {}

  /// What is so of \p Range as it asks, into \p Found; \p Heuristic is the priority that LLVM would give it.
  void observe(const llvm::LiveInterval &Range, unsigned Heuristic, llvm::MutableArrayRef<float> Found);

private:
  void findCalls();

  const llvm::MachineFunction &MF;
  const llvm::SlotIndexes &Indexes;
  bool KnowsCalls = false;
  std::vector<llvm::SlotIndex> Calls; // where registers are clobbered, in their order; allocation adds and takes none
};

} // namespace mlgokit

#endif
