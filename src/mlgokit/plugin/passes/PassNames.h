// How passes are called by whoever asks a gate, and by tables.
#ifndef MLGOKIT_PASSES_PASSNAMES_H
#define MLGOKIT_PASSES_PASSNAMES_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlgokit {

/// A pass, by the name in tables.
struct PassName {
  llvm::StringRef Argument; // such as "block-placement"; what it asks by, if it has none
  uint32_t Number;          // in tables
  size_t AskedSize;
};

/// The passes that asked so far, by the place of the name by which they ask: it is a constant in LLVM or in a plugin.
class PassNames {
public:
  /// A pass of the code generator: LLVM 22 asks by its argument, LLVM 19 by its title.
  const PassName &ofCodeGenerator(llvm::StringRef Asked) { return find(Asked, argumentOf); }
  /// A pass of the optimizer, which asks by its name in tables; what is done with analyses is no pass.
  const PassName *ofOptimizer(llvm::StringRef Asked) {
    const PassName &Found = find(Asked, passOrNothing);
    return Found.Argument.empty() ? nullptr : &Found;
  }

private:
  const PassName &find(llvm::StringRef Asked, llvm::StringRef (*Argument)(llvm::StringRef)) {
    auto Found = Known.find(Asked.data());
    // Of a constant, the end may be a constant as well.
    return Found != Known.end() && Found->second.AskedSize == Asked.size() ? Found->second : enter(Asked, Argument);
  }
  const PassName &enter(llvm::StringRef Asked, llvm::StringRef (*Argument)(llvm::StringRef));
  static llvm::StringRef argumentOf(llvm::StringRef Asked);
  static llvm::StringRef passOrNothing(llvm::StringRef Asked);

  llvm::DenseMap<const char *, PassName> Known;
};

/// The number of a pass in tables: CRC-32 of its argument.
uint32_t passNumber(llvm::StringRef Argument);

} // namespace mlgokit

#endif
