// How a decision is drawn from a policy's numbers: docs/formats.md, "Exploration". mlgokit/policy/exploration.py
// computes the same, operation by operation.
#ifndef MLGOKIT_SHARED_EXPLORATION_H
#define MLGOKIT_SHARED_EXPLORATION_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringMap.h"

#include <cstdint>
#include <utility>

namespace mlgokit {

/// The temperature and the probability of another decision than the drawn one.
struct Spread {
  double Temperature = 0;
  double FlipProbability = 0;
};

/// Two uniform numbers in [0, 1), for one decision.
struct Draw {
  double Choice = 0;
  double Flip = 0;
};

/// The decision and the natural logarithm of its probability (of the unit number's density, for a priority).
struct Binary {
  bool Yes = false;
  double LogProbability = 0;
};
struct Column {
  size_t Index = 0;
  double LogProbability = 0;
};
struct Priority {
  float Value = 0;
  double LogProbability = 0;
};

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

/// Yes or no; yes is the likelier if \p Preference is positive.
Binary decideBinary(double Preference, const Spread &S, const Draw &D);

/// One of the columns whose \p Mask is not 0; the last one if there is none. \p Logits has a number for each column.
Column chooseColumn(llvm::ArrayRef<double> Logits, llvm::ArrayRef<int64_t> Mask, const Spread &S, const Draw &D);

/// A priority: a whole float from 0 to below 2**31.
Priority drawPriority(double Unit, const Spread &S, const Draw &D);

/// The priority of a unit number, and any unit number at all with the logarithm of its density.
float priorityOf(double Unit);
Priority anyPriority(const Draw &D);

} // namespace mlgokit

#endif
