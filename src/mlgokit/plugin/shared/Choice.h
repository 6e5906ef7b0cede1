// A decision from a policy's numbers and two uniform ones: docs/formats.md, "Exploration".
// mlgokit/policy/exploration.py computes the same, operation by operation. Nothing here includes a header of LLVM, for
// the reason that Span.h has.
#ifndef MLGOKIT_SHARED_CHOICE_H
#define MLGOKIT_SHARED_CHOICE_H

#include "shared/Span.h"

#include <cstddef>
#include <cstdint>

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

/// The decision and the natural logarithm of its probability (of the unit number's density, about a live range).
struct Binary {
  bool Yes = false;
  double LogProbability = 0;
};
struct Column {
  size_t Index = 0;
  double LogProbability = 0;
};
struct RangeDecision {
  float Value = 0;
  double LogProbability = 0;
};

/// Yes or no; yes is the likelier if \p Preference is positive.
Binary decideBinary(double Preference, const Spread &S, const Draw &D);

/// One of the columns whose \p Mask is not 0; the last one if there is none. \p Logits has a number for each column.
Column chooseColumn(Span<double> Logits, Span<int64_t> Mask, const Spread &S, const Draw &D);

/// A priority: a whole float from 0 to below 2**31.
RangeDecision drawPriority(double Unit, const Spread &S, const Draw &D);

/// The priority of a unit number, and any unit number at all with the logarithm of its density.
float priorityOf(double Unit);
RangeDecision anyPriority(const Draw &D);

/// The binary logarithm of the factor of a live range's weight: from -8 to 8.
RangeDecision drawFactor(double Unit, const Spread &S, const Draw &D);
RangeDecision anyFactor(const Draw &D);

} // namespace mlgokit

#endif
