// What LLVM's MLInlineAdvisor counts in a function, counted without its loops.
//
// LLVM's FunctionPropertiesAnalysis also finds all loops, and again after each inlining, for two counts that no
// inlining feature is made of. The numbers here are LLVM's, and are kept as long as LLVM keeps its own.
#ifndef MLGOKIT_INLINER_BODYCOUNTS_H
#define MLGOKIT_INLINER_BODYCOUNTS_H

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

namespace mlgokit {

using BlockSet = llvm::SmallPtrSet<const llvm::BasicBlock *, 32>;

/// Counts over the blocks of a function that can be reached; debug instructions count for nothing.
struct BodyCounts {
  int64_t Blocks = 0;
  int64_t ConditionalBlocks = 0; // successors of conditional branches and switches
  int64_t Uses = 0;              // and one more if the function is seen outside the module
  int64_t DefinedCalls = 0;
  int64_t Loads = 0;
  int64_t Stores = 0;
  int64_t Instructions = 0;

  static BodyCounts of(const llvm::FunctionPropertiesInfo &Info);
};

/// Counts \p F as it is now, and leaves in \p Reached the blocks that can be reached.
BodyCounts countBody(const llvm::Function &F, BlockSet &Reached);

/// Keeps the counts until a pass changes the function: uses that come or go elsewhere are not seen, as with LLVM.
class BodyCountsAnalysis : public llvm::AnalysisInfoMixin<BodyCountsAnalysis> {
public:
  static llvm::AnalysisKey Key;
  using Result = BodyCounts;
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM);
};

} // namespace mlgokit

#endif
