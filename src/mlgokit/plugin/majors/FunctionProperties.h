// How LLVM's properties of a function are computed.
#ifndef MLGOKIT_MAJORS_FUNCTIONPROPERTIES_H
#define MLGOKIT_MAJORS_FUNCTIONPROPERTIES_H

#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/Config/llvm-config.h"

namespace mlgokit {

/// Whether LLVM, after a call was inlined, counts the blocks anew that use its value, reached or not.
constexpr bool CountsUsersAnew = LLVM_VERSION_MAJOR >= 21;

inline llvm::FunctionPropertiesInfo propertiesOf(const llvm::Function &F, const llvm::DominatorTree &Tree,
                                                 const llvm::LoopInfo &Loops) {
#if LLVM_VERSION_MAJOR >= 21
  return llvm::FunctionPropertiesInfo::getFunctionPropertiesInfo(F, Tree, Loops, /*IR2VecVocab=*/nullptr);
#else
  return llvm::FunctionPropertiesInfo::getFunctionPropertiesInfo(F, Tree, Loops);
#endif
}

} // namespace mlgokit

#endif
