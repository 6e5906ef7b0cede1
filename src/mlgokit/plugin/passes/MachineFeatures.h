// What a policy of passes is told of a function's instructions, once they are selected.
#ifndef MLGOKIT_PASSES_MACHINEFEATURES_H
#define MLGOKIT_PASSES_MACHINEFEATURES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace llvm {
class MachineFunction;
}

namespace mlgokit {

/// The names, in the order of countMachineFeatures.
llvm::ArrayRef<llvm::StringRef> machineFeatureNames();

/// Counts of \p MF as it is now, into \p Found; zeros without one.
void countMachineFeatures(const llvm::MachineFunction *MF, llvm::MutableArrayRef<int64_t> Found);

} // namespace mlgokit

#endif
