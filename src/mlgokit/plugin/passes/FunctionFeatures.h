// What a policy of passes is told of a function.
#ifndef MLGOKIT_PASSES_FUNCTIONFEATURES_H
#define MLGOKIT_PASSES_FUNCTIONFEATURES_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>
#include <vector>

namespace llvm {
class Function;
}

namespace mlgokit {

/// The names, in the order of functionFeatures.
llvm::ArrayRef<llvm::StringRef> functionFeatureNames();

/// Counts of \p F as it comes to the code generator; debug information does not count.
std::vector<int64_t> functionFeatures(const llvm::Function &F);

} // namespace mlgokit

#endif
