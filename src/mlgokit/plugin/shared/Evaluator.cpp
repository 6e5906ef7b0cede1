#include "shared/Evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace mlgokit {

namespace {

constexpr double LogitBound = 1e30;
constexpr int64_t SmallValue = 256;
constexpr int16_t NotAnInput = std::numeric_limits<int16_t>::min();

/// A raw value as the normalisers take it.
double bounded(double V, double Nan = 0) {
  constexpr double Most = std::numeric_limits<float>::max();
  // The sum turns -0 into 0.
  return std::isnan(V) ? Nan : std::clamp(V, -Most, Most) + 0.0;
}

} // namespace

Evaluator::Evaluator(PolicyNumbers Numbers) : N(std::move(Numbers)) {
  Scaled = InputScale(largestInput());
  Networks = Network(N.Members, std::move(N.Layers), Scaled, N.Recurrent);
  Input.resize(Networks.inputs());
  if (N.Normaliser == NormaliserKind::SignedLog) {
    SmallValues.assign(N.Features * 2 * SmallValue, NotAnInput);
    LastLarge.assign(N.Features, std::numeric_limits<double>::quiet_NaN());
    LastLargeInput.assign(N.Features, 0);
  }
}

/// What no normalised value is beyond: the clip, or what the largest float becomes.
double Evaluator::largestInput() const {
  if (N.Normaliser == NormaliserKind::Quantile)
    return 1;
  constexpr double LargestLog = 89;
  double Farthest = 0;
  for (size_t I = 0; I < N.Mean.size(); ++I)
    Farthest = std::max(Farthest, (LargestLog + std::fabs(N.Mean[I])) * std::fabs(N.Scale[I]));
  return std::min(N.Clip, Farthest);
}

void Evaluator::normalise(Span<double> Values) {
  if (N.Normaliser == NormaliserKind::Quantile) {
    for (size_t I = 0; I < Values.size(); ++I) {
      const float *Row = N.Boundaries.data() + I * N.QuantileCount;
      const size_t Length = N.RowLengths[I];
      const float V = float(bounded(Values[I], N.Nan));
      const double Rank = double(std::upper_bound(Row, Row + Length, V) - Row) / double(Length);
      Input[2 * I] = Scaled(float(Rank));
      Input[2 * I + 1] = Scaled(float(Rank * Rank));
    }
    return;
  }
  auto SignedLog = [&](size_t I) {
    const double V = bounded(Values[I]);
    const double Magnitude = std::log1p(std::fabs(V));
    const double Signed = V < 0 ? -Magnitude : Magnitude;
    return Scaled(float(std::clamp((Signed - N.Mean[I]) * N.Scale[I], -N.Clip, N.Clip)));
  };
  for (size_t I = 0; I < Values.size(); ++I) {
    const double V = Values[I];
    if (V >= -SmallValue && V < SmallValue && V == double(int32_t(V))) {
      int16_t &Known = SmallValues[size_t((2 * int64_t(I) + 1) * SmallValue + int64_t(V))];
      if (Known == NotAnInput)
        Known = SignedLog(I);
      Input[I] = Known;
    } else {
      if (V != LastLarge[I]) {
        LastLarge[I] = V;
        LastLargeInput[I] = SignedLog(I);
      }
      Input[I] = LastLargeInput[I];
    }
  }
}

std::pair<double, double> Evaluator::summary(Span<double> Values) {
  normalise(Values);
  const Span<float> Outputs = Networks.evaluate(Input);
  const size_t Members = Networks.members(), Width = Outputs.size() / Members;
  double Sum = 0, SumOfSquares = 0;
  for (size_t K = 0; K < Members; ++K) {
    const float *Out = Outputs.data() + K * Width;
    const double Answer = N.Output == OutputKind::Logits ? double(Out[1]) - double(Out[0]) : double(Out[0]);
    Sum += Answer;
    SumOfSquares += Answer * Answer;
  }
  const double Average = Sum / double(Members);
  const double Variance = SumOfSquares / double(Members) - Average * Average;
  return {Average, std::sqrt(Variance > 0 ? Variance : 0)};
}

std::optional<double> Evaluator::preference(Span<double> Values) {
  const double Margin = N.Gate ? N.Margins[Values[*N.Gate] != 0] : 0;
  if (std::isinf(Margin))
    return std::nullopt;
  const auto [Average, Deviation] = summary(Values);
  if (N.Output == OutputKind::Logits)
    return std::isnan(Average) ? 0 : Average;
  if ((N.Gate || N.Doubt > 0) && !(std::fabs(Average) > Margin + N.Doubt * Deviation))
    return std::nullopt;
  return std::isnan(Average) ? 0 : -Average / N.BytesPerUnit;
}

double Evaluator::columnLogit(Span<double> Values) {
  const auto [Average, Deviation] = summary(Values);
  const double Found = Average - N.Caution * Deviation;
  return std::isnan(Found) ? -LogitBound : std::clamp(Found, -LogitBound, LogitBound);
}

double Evaluator::unit(Span<double> Values) {
  const double Found = summary(Values).first;
  return std::isnan(Found) ? 0 : Found;
}

} // namespace mlgokit
