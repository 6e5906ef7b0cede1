// Which functions a profile says are executed most, so that they can be left to LLVM.
#ifndef MLGOKIT_SHARED_HOTFUNCTIONS_H
#define MLGOKIT_SHARED_HOTFUNCTIONS_H

#include "llvm/ADT/StringSet.h"

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace mlgokit {

/// Whether \p F is entered as often as the blocks that make up the most executed \p Percent of the profile, or has such
/// a block; false if that is 0, or the module has no profile.
bool isHot(const llvm::Function &F, double Percent);

/// The names of those of \p M.
llvm::StringSet<> hotFunctions(const llvm::Module &M, double Percent);

} // namespace mlgokit

#endif
