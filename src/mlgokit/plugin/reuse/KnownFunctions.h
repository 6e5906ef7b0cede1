// Functions whose code is known need not be generated again.
#ifndef MLGOKIT_REUSE_KNOWNFUNCTIONS_H
#define MLGOKIT_REUSE_KNOWNFUNCTIONS_H

#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgokit {

/// After the last pass over the IR: lists the functions of the module in MLGOKIT_FUNCTIONS, and drops the bodies of
/// those whose digests are in MLGOKIT_KNOWN (docs/formats.md, "Known functions"). Without these variables, nothing.
void registerKnownFunctions(llvm::PassBuilder &Builder);

/// Says which module comes to the inliner in this thread.
void enterInliner(llvm::Module &M);

/// Whether the functions of the module that comes to code generation in this thread were listed.
bool isListed();

/// Before code is generated, if its functions were listed: lets the list have what their code has of constants.
void enterCodeGeneration(llvm::Module &M);

} // namespace mlgokit

#endif
