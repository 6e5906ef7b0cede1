// Structural identities of a module and of what it defines.
#ifndef MLGOKIT_IDENTITY_IDENTITY_H
#define MLGOKIT_IDENTITY_IDENTITY_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Module.h"

#include <array>
#include <cstdint>
#include <string>

namespace mlgokit {

using Digest = std::array<uint8_t, 16>;

std::string toHex(const Digest &D);

struct Identity {
  Digest Module;
  llvm::DenseMap<const llvm::GlobalValue *, Digest> Definitions;
};

/// Covers instructions with their flags, types, constants, operands and attributes, the wiring among definitions, the
/// names of what is only declared, target and module flags. Leaves out every name that the module itself gives, the
/// order of definitions, metadata and debug information, and strings that are the source's path.
Identity identify(const llvm::Module &M);

} // namespace mlgokit

#endif
