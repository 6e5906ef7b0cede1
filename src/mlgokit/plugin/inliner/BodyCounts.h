// What LLVM's MLInlineAdvisor counts in a function, counted without its loops.
//
// LLVM's FunctionPropertiesAnalysis also finds all loops, and again after each inlining, for two counts that no
// inlining feature is made of. The numbers here are LLVM's, and are kept as long as LLVM keeps its own.
#ifndef MLGOKIT_INLINER_BODYCOUNTS_H
#define MLGOKIT_INLINER_BODYCOUNTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/FunctionPropertiesAnalysis.h"
#include "llvm/IR/PassManager.h"

#include <cstdint>

namespace llvm {
class CallBase;
}

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

/// Uses of a function, and one more if it is seen outside the module.
int64_t countUses(const llvm::Function &F);

/// Counts a function into which calls are inlined one after the other: of all but the first, only what they changed.
class CallerCounter {
public:
  /// Counts \p F as it is now, whole.
  BodyCounts count(const llvm::Function &F);
  /// Whether \p F is what was counted last, and what is known of it still holds.
  bool knows(const llvm::Function &F) const { return Counted == &F; }
  /// Whether a block of it can be reached.
  bool reaches(const llvm::BasicBlock &Block) const { return Reached.contains(&Block); }
  /// Notes what inlining \p Call may change of the function that was counted last.
  void beforeInlining(const llvm::CallBase &Call);
  /// Counts again after the call that was noted was inlined, or \p F whole if it is another function.
  BodyCounts afterInlining(const llvm::Function &F);
  void forget() { Counted = nullptr; }

private:
  void loseBehind(llvm::ArrayRef<const llvm::BasicBlock *> Lost);

  const llvm::Function *Counted = nullptr;
  BlockSet Reached;
  BodyCounts Counts;                                       // of what can be reached
  BodyCounts Rest;                                         // of what no inlining of the call that was noted changes
  const llvm::BasicBlock *Site = nullptr;                  // the block of that call
  llvm::SmallPtrSet<const llvm::BasicBlock *, 8> Changing; // what is not in Rest, but for Users
  llvm::SmallPtrSet<const llvm::BasicBlock *, 8> Border;   // those of them behind which nothing changes
  BlockSet Users;                                          // other blocks that use the value of the call
};

/// Keeps the counts until a pass changes the function: uses that come or go elsewhere are not seen, as with LLVM.
class BodyCountsAnalysis : public llvm::AnalysisInfoMixin<BodyCountsAnalysis> {
public:
  static llvm::AnalysisKey Key;
  using Result = BodyCounts;
  Result run(llvm::Function &F, llvm::FunctionAnalysisManager &FAM);
};

} // namespace mlgokit

#endif
