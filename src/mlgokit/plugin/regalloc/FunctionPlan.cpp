#include "regalloc/FunctionPlan.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr uint16_t FromRange = 0x8000; // smaller choices are numbers of earlier questions
constexpr unsigned KeptBits = 17;

std::optional<unsigned> chosenPriority(uint16_t Choice, unsigned Default, ArrayRef<unsigned> Given) {
  if (Choice >= FromRange)
    return unsigned(Choice - FromRange) << KeptBits | (Default & ((1u << KeptBits) - 1));
  if (Choice >= Given.size())
    return std::nullopt;
  return std::max(Given[Choice], Given[Choice] + 1);
}

} // namespace

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
