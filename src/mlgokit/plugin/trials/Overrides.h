// Decisions about one function that are not LLVM's: what tables and trials are made of.
#ifndef MLGOKIT_TRIALS_OVERRIDES_H
#define MLGOKIT_TRIALS_OVERRIDES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlgokit {

/// An answer other than LLVM's to the \p Nth question, from 0, about one thing.
struct Override {
  uint32_t Of; // the number of a live range, or of a pass
  uint16_t Nth;
  uint16_t Choice; // of an eviction: the column; of a priority: docs/formats.md; of a pass: 0, it does not run
};
static_assert(sizeof(Override) == 8, "as in files");

/// Those of one function.
struct Overrides {
  std::vector<Override> Evictions, Priorities, Passes;

  size_t size() const { return Evictions.size() + Priorities.size() + Passes.size(); }
};

} // namespace mlgokit

#endif
