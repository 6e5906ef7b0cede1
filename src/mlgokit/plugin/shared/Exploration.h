// The uniform numbers from which decisions are drawn: docs/formats.md, "Exploration". mlgokit/policy/exploration.py
// computes the same, operation by operation.
#ifndef MLGOKIT_SHARED_EXPLORATION_H
#define MLGOKIT_SHARED_EXPLORATION_H

#include "shared/Choice.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlgokit {

/// The draw of observation \p Index of a SplitMix64 stream (Steele, Lea, Flood 2014) with the first state \p First.
Draw drawAt(uint64_t First, uint64_t Index);

/// The draws of functions: each has its own stream, whatever else the compilation does.
class FunctionDraws {
public:
  FunctionDraws(llvm::StringRef Problem, uint64_t Seed) : Problem(Problem), Seed(Seed) {}
  void enter(llvm::StringRef Function);
  Draw next() { return drawAt(First, (*Count)++); }

private:
  const llvm::StringRef Problem;
  const uint64_t Seed;
  uint64_t First = 0;
  uint64_t *Count = nullptr;
  llvm::StringMap<uint64_t> Counts; // decisions of each function; an entry does not move
};

} // namespace mlgokit

#endif
