// Digests of what is known, as a file has them.
#ifndef MLGOKIT_REUSE_DIGESTS_H
#define MLGOKIT_REUSE_DIGESTS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"

namespace mlgokit {

/// The digests of 16 bytes in the file at \p Path, which holds \p What; none without a path.
llvm::Expected<llvm::StringSet<>> readDigests(llvm::StringRef What, const char *Path);

} // namespace mlgokit

#endif
