// How passes are called by whoever asks a gate, and by tables.
#ifndef MLGOKIT_PASSES_PASSNAMES_H
#define MLGOKIT_PASSES_PASSNAMES_H

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlgokit {

/// The names of the passes that this compiler has.
class PassNames {
public:
  /// The argument of a pass, such as "block-placement", that asks by this name: LLVM 22 asks by the argument itself,
  /// LLVM 19 by the title.
  llvm::StringRef argumentOf(llvm::StringRef Asked);

private:
  llvm::StringMap<llvm::StringRef> Known;
};

/// The number of a pass in tables: CRC-32 of its argument.
uint32_t passNumber(llvm::StringRef Argument);

} // namespace mlgokit

#endif
