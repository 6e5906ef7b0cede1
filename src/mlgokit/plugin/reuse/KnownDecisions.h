// What was decided before need not be compiled again.
#ifndef MLGOKIT_REUSE_KNOWNDECISIONS_H
#define MLGOKIT_REUSE_KNOWNDECISIONS_H

#include "llvm/Passes/PassBuilder.h"

namespace mlgokit {

/// After the inliner: writes the digest of its decisions to MLGOKIT_DECIDED, and ends the compiler there if it is one
/// of those in MLGOKIT_KNOWN_DECISIONS (docs/formats.md, "Known decisions"). Without these variables, nothing.
void registerKnownDecisions(llvm::PassBuilder &Builder);

} // namespace mlgokit

#endif
