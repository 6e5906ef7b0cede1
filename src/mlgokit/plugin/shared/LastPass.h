// Which pass of the optimizer is the last one.
#ifndef MLGOKIT_SHARED_LASTPASS_H
#define MLGOKIT_SHARED_LASTPASS_H

#include "llvm/ADT/StringRef.h"

namespace mlgokit {

/// The last pass of every pipeline for code generation that changes the IR, but for that of a full link-time
/// optimization, which has a place for the last one.
inline constexpr llvm::StringLiteral LastPass = "RelLookupTableConverterPass";

} // namespace mlgokit

#endif
