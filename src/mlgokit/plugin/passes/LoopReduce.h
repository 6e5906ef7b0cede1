// Loop strength reduction, which runs at the beginning of code generation, left out of single functions.
#ifndef MLGOKIT_PASSES_LOOPREDUCE_H
#define MLGOKIT_PASSES_LOOPREDUCE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/Module.h"

namespace mlgokit {

inline constexpr llvm::StringLiteral LoopReduce = "loop-reduce";

/// Tells the code generator, by an attribute of the function, to leave it out.
void leaveOutLoopReduce(llvm::Function &F);

/// The functions of a module of which it is left out, as LLVM prints them.
llvm::StringSet<> functionsWithoutLoopReduce(const llvm::Module &M);

/// Whether the code generator is at one of these functions. A loop pass does not tell the gate whose loop it asks
/// about, but LLVM would print it after a crash.
bool isRunningOn(const llvm::StringSet<> &Functions);

} // namespace mlgokit

#endif
