// Which functions may count on their tail calls: without them the stack may grow with the input.
#ifndef MLGOKIT_PASSES_TAILCALLS_H
#define MLGOKIT_PASSES_TAILCALLS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"

namespace llvm {
class Function;
class Module;
} // namespace llvm

namespace mlgokit {

/// The pass that marks tail calls, and makes loops of functions that call themselves last. LLVM promises nothing there,
/// but programs that run today may depend on it.
constexpr llvm::StringLiteral TailCallPass = "TailCallElimPass";

/// The names of functions of \p M that call themselves, or each other in circles.
llvm::StringSet<> functionsInCircles(const llvm::Module &M);

/// Whether \p F ends with a call by a pointer somewhere, as interpreters go from one instruction to the next.
bool endsByPointer(const llvm::Function &F);

} // namespace mlgokit

#endif
