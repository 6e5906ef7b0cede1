// How far a function is from those that call nothing, as it was before inlining began: LLVM's `callsite_height`.
#ifndef MLGOKIT_INLINER_FUNCTIONLEVELS_H
#define MLGOKIT_INLINER_FUNCTIONLEVELS_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/Analysis/LazyCallGraph.h"

namespace mlgokit {

class FunctionLevels {
public:
  explicit FunctionLevels(llvm::LazyCallGraph &Graph);

  int64_t of(const llvm::Function &F) const { return Levels.lookup(&F); }
  bool knows(const llvm::Function &F) const { return Levels.count(&F); }
  /// A function that was made since has the level of the one that it was found beside.
  void add(const llvm::Function &New, const llvm::Function &Beside) { Levels[&New] = Levels.lookup(&Beside); }

private:
  llvm::DenseMap<const llvm::Function *, unsigned> Levels;
};

} // namespace mlgokit

#endif
