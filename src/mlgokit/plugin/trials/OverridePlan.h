// Which questions of one kind about one function are answered otherwise than LLVM would, and by what.
#ifndef MLGOKIT_TRIALS_OVERRIDEPLAN_H
#define MLGOKIT_TRIALS_OVERRIDEPLAN_H

#include "trials/Overrides.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/DenseMap.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace mlgokit {

/// What takes the place of LLVM's answer: a known choice, else a drawn one, for which there is a number in [0, 1).
struct PlannedOverride {
  std::optional<uint16_t> Choice;
  double Drawn = 0;
};

class OverridePlan {
public:
  OverridePlan(llvm::ArrayRef<Override> Known, double FlipProbability, uint64_t Seed);
  /// The next question is about this; nothing if LLVM's answer stands.
  std::optional<PlannedOverride> next(uint32_t Of);
  /// What the last question was about, and how many questions about it came before.
  std::pair<uint32_t, uint16_t> last() const { return {Last.Of, Last.Nth}; }
  /// The last question was answered otherwise.
  void record(uint16_t Choice);
  /// Takes the column that \p Wanted names, or any other than \p Default, LLVM's; only one that \p Mask allows, else
  /// \p Default.
  size_t column(const PlannedOverride &Wanted, llvm::ArrayRef<int64_t> Mask, size_t Default);
  /// Whether no question will be answered otherwise.
  bool isIdle() const { return Known.empty() && !(FlipProbability > 0); }

  std::vector<Override> Made;
  uint32_t Questions = 0;

private:
  llvm::DenseMap<uint64_t, uint16_t> Known;
  llvm::DenseMap<uint32_t, uint32_t> Asked;
  const double FlipProbability;
  const uint64_t Seed;
  Override Last{};
  bool LastFits = false;
};

} // namespace mlgokit

#endif
