// Digests of functions as they go to code generation.
#ifndef MLGOKIT_IDENTITY_FINALCODE_H
#define MLGOKIT_IDENTITY_FINALCODE_H

#include "identity/Identity.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/Attributes.h"
#include "llvm/IR/Module.h"

namespace mlgokit {

/// The variable whose address a function always returns. LLVM from 20 on looks into callees for it when it generates
/// code: https://github.com/llvm/llvm-project/pull/102926
const llvm::GlobalVariable *returnedVariable(const llvm::Function &F);

/// Digests of the functions of one module at one moment. Two functions of one digest, out of two compilations of one
/// module with one command line, become the same machine code. Beside what Identity.h covers, a digest covers names,
/// linkage, metadata other than debug information, the contents of constants referred to, and the order of use lists,
/// which decides what some passes of the code generator do first.
class FinalCode {
public:
  explicit FinalCode(const llvm::Module &M) : M(M) {}
  Digest of(const llvm::Function &F);
  Digest type(llvm::Type *T);
  Digest attributes(llvm::AttributeList List);
  Digest global(const llvm::GlobalValue &G);
  Digest contents(const llvm::GlobalValue &G);

private:
  const llvm::Module &M;
  llvm::DenseMap<llvm::Type *, Digest> Types;
  llvm::DenseMap<void *, Digest> Lists;
  llvm::DenseMap<const llvm::GlobalValue *, Digest> Globals, Contents;
};

} // namespace mlgokit

#endif
