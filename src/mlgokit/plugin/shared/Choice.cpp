#include "shared/Choice.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace mlgokit {

namespace {

constexpr double UnitBound = 16;
constexpr double PrioritiesPerUnit = 67108864;
constexpr double LargestPriority = 2147483520; // the largest float below 2**31
constexpr double FactorBound = 8;

float factorOf(double Unit) { return std::isnan(Unit) ? 0 : float(std::clamp(Unit, -FactorBound, FactorBound)); }

/// What \p Of makes of a unit number, or of one drawn around it.
RangeDecision drawAround(double Unit, const Spread &S, const Draw &D, float (*Of)(double)) {
  if (!(S.Temperature > 0))
    return {Of(Unit), 0};
  const double Normal = std::sqrt(-2 * std::log(1 - D.Choice)) * std::cos(6.283185307179586 * D.Flip);
  return {Of(Unit + S.Temperature * Normal), -0.5 * Normal * Normal - std::log(S.Temperature * 2.5066282746310002)};
}

} // namespace

Binary decideBinary(double Preference, const Spread &S, const Draw &D) {
  const double Chance = S.Temperature > 0 ? 1 / (1 + std::exp(-Preference / S.Temperature)) : double(Preference > 0);
  const bool Drawn = S.Temperature > 0 ? D.Choice < Chance : Preference > 0;
  const bool Yes = Drawn != (D.Flip < S.FlipProbability);
  const double Both = Chance * (1 - S.FlipProbability) + (1 - Chance) * S.FlipProbability;
  return {Yes, std::log(Yes ? Both : 1 - Both)};
}

Column chooseColumn(Span<double> Logits, Span<int64_t> Mask, const Spread &S, const Draw &D) {
  std::vector<size_t> Legal;
  for (size_t I = 0; I < Mask.size(); ++I)
    if (Mask[I])
      Legal.push_back(I);
  if (Legal.empty())
    return {Mask.size() - 1, 0};
  double Most = Logits[Legal.front()];
  for (size_t I : Legal)
    Most = std::max(Most, Logits[I]);
  std::vector<double> Share;
  bool Found = false;
  for (size_t I : Legal) {
    if (S.Temperature > 0) {
      Share.push_back(std::exp((Logits[I] - Most) / S.Temperature));
    } else {
      Share.push_back(!Found && Logits[I] == Most);
      Found |= Logits[I] == Most;
    }
  }
  double Total = 0, Reached = 0;
  for (double Part : Share)
    Total += Part;
  size_t Place = Legal.size() - 1;
  for (size_t K = 0; K < Share.size(); ++K) {
    Reached += Share[K];
    if (D.Choice * Total < Reached) {
      Place = K;
      break;
    }
  }
  const double Others = double(Legal.size() - 1);
  if (Others > 0 && D.Flip < S.FlipProbability) {
    const size_t Other = std::min(size_t(D.Flip / S.FlipProbability * Others), Legal.size() - 2);
    Place = Other + (Other >= Place);
  }
  double Chance = Share[Place] / Total;
  if (Others > 0)
    Chance = Chance * (1 - S.FlipProbability) + (1 - Chance) * S.FlipProbability / Others;
  return {Legal[Place], std::log(Chance)};
}

float priorityOf(double Unit) {
  const double Bounded = std::isnan(Unit) ? 0 : std::clamp(Unit, -UnitBound, UnitBound);
  return float(std::min(std::floor((Bounded + UnitBound) * PrioritiesPerUnit), LargestPriority));
}

RangeDecision drawPriority(double Unit, const Spread &S, const Draw &D) { return drawAround(Unit, S, D, priorityOf); }

RangeDecision anyPriority(const Draw &D) {
  return {priorityOf(2 * UnitBound * D.Choice - UnitBound), -std::log(2 * UnitBound)};
}

RangeDecision drawFactor(double Unit, const Spread &S, const Draw &D) { return drawAround(Unit, S, D, factorOf); }

RangeDecision anyFactor(const Draw &D) {
  return {factorOf(2 * FactorBound * D.Choice - FactorBound), -std::log(2 * FactorBound)};
}

} // namespace mlgokit
