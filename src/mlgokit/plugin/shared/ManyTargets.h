// Which functions consist of targets of a jump so much that policies for size leave them to LLVM.
#ifndef MLGOKIT_SHARED_MANYTARGETS_H
#define MLGOKIT_SHARED_MANYTARGETS_H

namespace llvm {
class Function;
} // namespace llvm

namespace mlgokit {

/// Whether cases of switches and jumps by an address lead to four blocks of \p F or more.
bool hasTargets(const llvm::Function &F);

/// Whether cases of switches and jumps by an address lead to four blocks of \p F or more, and to at least half of its
/// blocks: interpreters and decoders. Policies of passes, priorities and spill weights make some of these larger.
bool hasManyTargets(const llvm::Function &F);

} // namespace mlgokit

#endif
