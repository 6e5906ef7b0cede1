// Which functions have so many targets of a jump that policies for size leave them to LLVM.
#ifndef MLGOKIT_SHARED_MANYTARGETS_H
#define MLGOKIT_SHARED_MANYTARGETS_H

namespace llvm {
class Function;
} // namespace llvm

namespace mlgokit {

/// Whether \p F jumps by an address somewhere, or its switches have four cases or more together. Policies of passes,
/// priorities and spill weights make some of these functions larger, whatever the number of targets.
bool hasManyTargets(const llvm::Function &F);

} // namespace mlgokit

#endif
