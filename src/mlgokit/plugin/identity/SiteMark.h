// The kind of metadata in which calls carry the place where they were written; it is no part of what code is.
#ifndef MLGOKIT_IDENTITY_SITEMARK_H
#define MLGOKIT_IDENTITY_SITEMARK_H

#include "llvm/IR/LLVMContext.h"

namespace mlgokit {

inline unsigned siteMarkKind(llvm::LLVMContext &Context) { return Context.getMDKindID("mlgokit.site"); }

} // namespace mlgokit

#endif
