#include "regalloc/OverridePlan.h"

#include "shared/Exploration.h"

#include "llvm/ADT/SmallVector.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr uint16_t FromRange = 0x8000; // smaller choices are numbers of earlier questions
constexpr unsigned KeptBits = 17;

uint64_t placeOf(uint32_t Range, uint32_t Nth) { return uint64_t(Range) << 32 | Nth; }

std::optional<unsigned> chosenPriority(uint16_t Choice, unsigned Default, ArrayRef<unsigned> Given) {
  if (Choice >= FromRange)
    return unsigned(Choice - FromRange) << KeptBits | (Default & ((1u << KeptBits) - 1));
  if (Choice >= Given.size())
    return std::nullopt;
  return std::max(Given[Choice], Given[Choice] + 1);
}

} // namespace

OverridePlan::OverridePlan(ArrayRef<Override> Fixed, double FlipProbability, uint64_t Seed)
    : FlipProbability(FlipProbability), Seed(Seed) {
  for (const Override &O : Fixed)
    Known.try_emplace(placeOf(O.Range, O.Nth), O.Choice);
}

std::optional<PlannedOverride> OverridePlan::next(uint32_t Range) {
  const uint32_t Nth = Asked[Range]++;
  const Draw D = drawAt(Seed, Questions++);
  LastFits = Nth <= UINT16_MAX;
  Last = {Range, uint16_t(Nth), 0};
  if (!LastFits)
    return std::nullopt;
  auto Found = Known.find(placeOf(Range, Nth));
  if (D.Flip < FlipProbability) {
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

unsigned FunctionPlan::priority(unsigned Default, const std::optional<PlannedOverride> &Wanted) {
  std::optional<unsigned> Value;
  if (Wanted) {
    // One half of the drawn choices are the priority of another live range, the other any at all.
    const double Drawn = 2 * Wanted->Drawn;
    const uint16_t Choice = Wanted->Choice ? *Wanted->Choice
                            : Drawn < 1    ? uint16_t(Drawn * double(std::min(Given.size(), size_t(FromRange))))
                                           : uint16_t(FromRange + (Drawn - 1) * FromRange);
    if ((Value = chosenPriority(Choice, Default, Given)))
      Priorities.record(Choice);
  }
  Given.push_back(Value.value_or(Default));
  return Given.back();
}

unsigned FunctionPlan::priorityNear(unsigned Wanted, unsigned Default) {
  const uint16_t Choice = FromRange + uint16_t(Wanted >> KeptBits);
  Priorities.record(Choice);
  Given.push_back(*chosenPriority(Choice, Default, Given));
  return Given.back();
}

} // namespace mlgokit
