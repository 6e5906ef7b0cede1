#include "trials/OverridePlan.h"

#include "shared/Exploration.h"

#include "llvm/ADT/SmallVector.h"

using namespace llvm;

namespace mlgokit {

static uint64_t placeOf(uint32_t Of, uint32_t Nth) { return uint64_t(Of) << 32 | Nth; }

OverridePlan::OverridePlan(ArrayRef<Override> Fixed, double FlipProbability, uint64_t Seed)
    : FlipProbability(FlipProbability), Seed(Seed) {
  for (const Override &O : Fixed)
    Known.try_emplace(placeOf(O.Of, O.Nth), O.Choice);
}

std::optional<PlannedOverride> OverridePlan::next(uint32_t Of) {
  const uint32_t Nth = Asked[Of]++;
  const uint64_t Question = Questions++;
  LastFits = Nth <= UINT16_MAX;
  Last = {Of, uint16_t(Nth), 0};
  if (!LastFits)
    return std::nullopt;
  auto Found = Known.find(placeOf(Of, Nth));
  if (const Draw D = FlipProbability > 0 ? drawAt(Seed, Question) : Draw(); D.Flip < FlipProbability) {
    if (Found == Known.end())
      return PlannedOverride{std::nullopt, D.Choice};
    // Half of the flips of an override take it back.
    return D.Choice < 0.5 ? std::nullopt : std::optional(PlannedOverride{std::nullopt, 2 * D.Choice - 1});
  }
  if (Found == Known.end())
    return std::nullopt;
  return PlannedOverride{Found->second, 0};
}

size_t OverridePlan::column(const PlannedOverride &Wanted, ArrayRef<int64_t> Mask, size_t Default) {
  SmallVector<size_t, 64> Others;
  for (size_t C = 0; C < Mask.size(); ++C)
    if (Mask[C] && C != Default && (!Wanted.Choice || *Wanted.Choice == C))
      Others.push_back(C);
  if (Others.empty())
    return Default;
  const size_t Column = Others[size_t(Wanted.Drawn * double(Others.size()))];
  record(uint16_t(Column));
  return Column;
}

void OverridePlan::record(uint16_t Choice) {
  if (!LastFits)
    return;
  Last.Choice = Choice;
  Made.push_back(Last);
}

} // namespace mlgokit
