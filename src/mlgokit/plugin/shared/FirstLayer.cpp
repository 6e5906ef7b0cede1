#include "shared/FirstLayer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

// A test builds without, to hold both to the same numbers.
#if defined(__x86_64__) && !defined(MLGOKIT_NARROW)
#define MLGOKIT_WIDE
#include <immintrin.h>
#endif

namespace mlgokit {

namespace {

constexpr int InputBits = 13; // the largest input is 2^13, so that a difference of two has 16 bits
constexpr int WeightBits = 15, SumBits = 31;
constexpr int LargestExponent = 40; // of inputs, so that no power of two is beyond the numbers there are

int exponentOf(double Value) {
  int Exponent = 0;
  std::frexp(Value, &Exponent);
  return Exponent;
}

/// Times a power of two, which is exact.
double scaled(float Value, double Scale) { return std::nearbyint(double(Value) * Scale); }

/// Whether no weight and no sum of a member is too large with weights times
/// 2^Exponent, whatever the inputs are.
bool fits(Span<float> Weight, Span<float> Bias, int Exponent, int InputExponent) {
  const double OfWeights = std::ldexp(1.0, Exponent), OfSums = std::ldexp(1.0, Exponent + InputExponent);
  for (size_t J = 0; J < Bias.size(); ++J) {
    double Sum = 0;
    for (size_t I = J; I < Weight.size(); I += Bias.size()) {
      const double W = std::fabs(scaled(Weight[I], OfWeights));
      if (W > std::numeric_limits<int16_t>::max())
        return false;
      Sum += W;
    }
    if (Sum * (1 << InputBits) + std::fabs(scaled(Bias[J], OfSums)) > std::numeric_limits<int32_t>::max())
      return false;
  }
  return true;
}

/// The largest power of two for the weights of a member.
int weightExponent(Span<float> Weight, Span<float> Bias, int InputExponent) {
  auto Largest = [](Span<float> Values) {
    double Most = 0;
    for (float V : Values)
      Most = std::max(Most, std::fabs(double(V)));
    return Most;
  };
  int Exponent =
      std::min(WeightBits - exponentOf(Largest(Weight)), SumBits - InputExponent - exponentOf(Largest(Bias)));
  while (!fits(Weight, Bias, Exponent, InputExponent))
    --Exponent;
  return Exponent;
}

void addFrom(size_t First, const ChangedPairs &Changed, const int16_t *Weight, size_t Outputs, int32_t *Sums) {
  for (size_t P = 0; P < Changed.Count; ++P) {
    int16_t Change[2];
    std::memcpy(Change, &Changed.Both[P], sizeof(Change));
    const int16_t *Row = Weight + Changed.Index[P] * Outputs * 2;
    for (size_t J = First; J < Outputs; ++J)
      Sums[J] += Change[0] * Row[2 * J] + Change[1] * Row[2 * J + 1];
  }
}

void addPlain(const ChangedPairs &Changed, const int16_t *Weight, size_t Outputs, int32_t *Sums) {
  addFrom(0, Changed, Weight, Outputs, Sums);
}

#ifdef MLGOKIT_WIDE
constexpr size_t SumCount = 8;

template <size_t Vectors>
__attribute__((target("avx2"))) void addLanes(const ChangedPairs &Changed, const int16_t *Weight, size_t Outputs,
                                              int32_t *Sums) {
  __m256i Sum[Vectors];
  std::memcpy(Sum, Sums, sizeof(Sum));
  for (size_t P = 0; P < Changed.Count; ++P) {
    const __m256i Both = _mm256_set1_epi32(Changed.Both[P]);
    __m256i Row[Vectors];
    std::memcpy(Row, Weight + Changed.Index[P] * Outputs * 2, sizeof(Row));
    for (size_t V = 0; V < Vectors; ++V)
      Sum[V] = _mm256_add_epi32(Sum[V], _mm256_madd_epi16(Both, Row[V]));
  }
  std::memcpy(Sums, Sum, sizeof(Sum));
}

__attribute__((target("avx2"))) void addWide(const ChangedPairs &Changed, const int16_t *Weight, size_t Outputs,
                                             int32_t *Sums) {
  size_t J = 0;
  for (; J + 6 * SumCount <= Outputs; J += 6 * SumCount)
    addLanes<6>(Changed, Weight + 2 * J, Outputs, Sums + J);
  for (; J + SumCount <= Outputs; J += SumCount)
    addLanes<1>(Changed, Weight + 2 * J, Outputs, Sums + J);
  addFrom(J, Changed, Weight, Outputs, Sums);
}
#endif

} // namespace

InputScale::InputScale(double Most) : Bound(std::min<double>(Most, std::numeric_limits<float>::max())) {
  int E = 0;
  const bool IsPower = std::frexp(Bound, &E) == 0.5;
  Exponent = std::min(InputBits - E + IsPower, LargestExponent);
  Scale = std::ldexp(1.0, Exponent);
}

int16_t InputScale::operator()(float Input) const {
  return int16_t(std::nearbyint(std::clamp(double(Input), -Bound, Bound) * Scale));
}

FirstLayer::FirstLayer(size_t Members, const Layer &Floats, const InputScale &OfInputs)
    : Members(Members), Inputs(Floats.Inputs), Outputs(Floats.Outputs), Pairs((Inputs + 1) / 2),
      Weight(Members * Pairs * Outputs * 2), Add(addPlain), Last(2 * Pairs), Change(2 * Pairs) {
  for (size_t K = 0; K < Members; ++K) {
    const Span<float> From = Span<float>(Floats.Weight).slice(K * Inputs * Outputs, Inputs * Outputs);
    const Span<float> Bias = Span<float>(Floats.Bias).slice(K * Outputs, Outputs);
    const int Exponent = weightExponent(From, Bias, OfInputs.exponent());
    const double OfWeights = std::ldexp(1.0, Exponent), OfSums = std::ldexp(1.0, Exponent + OfInputs.exponent());
    for (size_t I = 0; I < Inputs; ++I)
      for (size_t J = 0; J < Outputs; ++J)
        Weight[((K * Pairs + I / 2) * Outputs + J) * 2 + I % 2] = int16_t(scaled(From[I * Outputs + J], OfWeights));
    for (float B : Bias)
      Sums.push_back(int32_t(scaled(B, OfSums)));
    Scale.push_back(std::ldexp(1.0, -Exponent - OfInputs.exponent()));
  }
  Changed.Index.resize(Pairs);
  Changed.Both.resize(Pairs);
#ifdef MLGOKIT_WIDE
  if (__builtin_cpu_supports("avx2"))
    Add = addWide;
#endif
}

void FirstLayer::evaluate(Span<int16_t> Input, float *Out) {
  for (size_t I = 0; I < Inputs; ++I) {
    Change[I] = int16_t(Input[I] - Last[I]);
    Last[I] = Input[I];
  }
  size_t Count = 0;
  for (size_t P = 0; P < Pairs; ++P) {
    std::memcpy(&Changed.Both[Count], &Change[2 * P], sizeof(int32_t));
    Changed.Index[Count] = uint32_t(P);
    Count += Changed.Both[Count] != 0;
  }
  Changed.Count = Count;
  for (size_t K = 0; K < Members; ++K) {
    int32_t *Own = Sums.data() + K * Outputs;
    Add(Changed, Weight.data() + K * Pairs * Outputs * 2, Outputs, Own);
    for (size_t J = 0; J < Outputs; ++J)
      Out[K * Outputs + J] = float(Own[J] * Scale[K]);
  }
}

} // namespace mlgokit
