// Functions that are compiled for size, also where their code is generated without the attribute minsize.
#ifndef MLGOKIT_SHARED_MINSIZE_H
#define MLGOKIT_SHARED_MINSIZE_H

#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"

namespace mlgokit {

/// Leaves a function its attribute optsize alone, as at -Os; in tables it stands with passes.
inline constexpr llvm::StringLiteral MinSize = "minsize";

/// Says of a function that code generation takes minsize from that it had it.
inline constexpr llvm::StringLiteral HadMinSize = "mlgokit-had-minsize";

/// Whether policies that are taught code for size decide about the code of \p F.
inline bool isForSize(const llvm::Function &F) { return F.hasMinSize() || F.hasFnAttribute(HadMinSize); }

} // namespace mlgokit

#endif
