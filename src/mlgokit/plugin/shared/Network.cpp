#include "shared/Network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

// A test builds without, to hold both to the same numbers.
#if defined(__x86_64__) && !defined(MLGOKIT_NARROW)
#define MLGOKIT_WIDE
#endif
#define MLGOKIT_ALWAYS_INLINE inline __attribute__((always_inline))

namespace mlgokit {

namespace {

constexpr size_t LaneCount = 8;
/// Lanes never meet: each sum is made in the same order, however many a processor makes at once.
using Lanes = float __attribute__((vector_size(LaneCount * sizeof(float))));

/// Leaving out an input of 0 leaves every sum as it is, since the weights are finite: only the sign of a sum that is 0
/// can differ, and neither ReLU nor the sum over members, which begins with +0, keeps that.
void gather(Span<float> Input, ActiveInputs &Active) {
  size_t Count = 0;
  for (size_t I = 0; I < Input.size(); ++I) {
    Active.Index[Count] = uint32_t(I);
    Active.Value[Count] = Input[I];
    Count += Input[I] != 0;
  }
  Active.Count = Count;
}

/// Sums in registers: each is its bias plus the products of the inputs, one after the other.
template <size_t Vectors>
MLGOKIT_ALWAYS_INLINE void accumulate(const ActiveInputs &Active, const float *Weight, size_t Stride, const float *Bias,
                                      float *Out) {
  Lanes Sum[Vectors];
  std::memcpy(Sum, Bias, sizeof(Sum));
  for (size_t I = 0; I < Active.Count; ++I) {
    Lanes Row[Vectors];
    std::memcpy(Row, Weight + Active.Index[I] * Stride, sizeof(Row));
    for (size_t V = 0; V < Vectors; ++V)
      Sum[V] += Active.Value[I] * Row[V];
  }
  std::memcpy(Out, Sum, sizeof(Sum));
}

MLGOKIT_ALWAYS_INLINE void evaluateAny(const ActiveInputs &Active, const float *Weight, size_t Outputs,
                                       const float *Bias, float *Out) {
  size_t J = 0;
  for (; J + 6 * LaneCount <= Outputs; J += 6 * LaneCount)
    accumulate<6>(Active, Weight + J, Outputs, Bias + J, Out + J);
  for (; J + 4 * LaneCount <= Outputs; J += 4 * LaneCount)
    accumulate<4>(Active, Weight + J, Outputs, Bias + J, Out + J);
  for (; J + LaneCount <= Outputs; J += LaneCount)
    accumulate<1>(Active, Weight + J, Outputs, Bias + J, Out + J);
  for (; J < Outputs; ++J) {
    float Sum = Bias[J];
    for (size_t I = 0; I < Active.Count; ++I)
      Sum += Active.Value[I] * Weight[Active.Index[I] * Outputs + J];
    Out[J] = Sum;
  }
}

void evaluatePlain(const ActiveInputs &Active, const float *Weight, size_t Outputs, const float *Bias, float *Out) {
  evaluateAny(Active, Weight, Outputs, Bias, Out);
}

#ifdef MLGOKIT_WIDE
// Without "fma": a fused product is rounded once less, and numpy's is not fused.
__attribute__((target("avx2"))) void evaluateWide(const ActiveInputs &Active, const float *Weight, size_t Outputs,
                                                  const float *Bias, float *Out) {
  evaluateAny(Active, Weight, Outputs, Bias, Out);
}
#endif

/// By the C library, as numpy's twin does.
double sigmoid(double V) { return 0.5 + 0.5 * std::tanh(0.5 * V); }

/// A last layer of one output is one long chain of additions; those of several members are made side by side.
template <size_t Chains>
void accumulateChains(const float *In, size_t Inputs, const float *Weight, const float *Bias, float *Out) {
  float Sum[Chains];
  for (size_t K = 0; K < Chains; ++K)
    Sum[K] = Bias[K];
  for (size_t I = 0; I < Inputs; ++I)
    for (size_t K = 0; K < Chains; ++K)
      Sum[K] += In[K * Inputs + I] * Weight[K * Inputs + I];
  for (size_t K = 0; K < Chains; ++K)
    Out[K] = Sum[K];
}

} // namespace

Network::Network(size_t Members, std::vector<Layer> All, const InputScale &Scale, size_t Units)
    : Members(Members), Units(Units), First(Members, All.front(), Scale), Memory(Members * Units),
      Cells(Members * Units), Evaluate(evaluatePlain), Sums(4 * Units) {
  size_t Widest = 0;
  for (const Layer &Now : All)
    Widest = std::max({Widest, Now.Inputs, Now.Outputs});
  Layers.assign(std::make_move_iterator(All.begin() + 1), std::make_move_iterator(All.end()));
  Active.Index.resize(Widest);
  Active.Value.resize(Widest);
  Hidden.resize(Members * Widest);
  Next.resize(Members * Widest);
#ifdef MLGOKIT_WIDE
  if (__builtin_cpu_supports("avx2"))
    Evaluate = evaluateWide;
#endif
}

/// From Hidden to Next, by what was kept of the inputs before.
void Network::recall(const Layer &Gates) {
  const size_t Width = Gates.Inputs - Units;
  for (size_t K = 0; K < Members; ++K) {
    float *Out = Memory.data() + K * Units, *Cell = Cells.data() + K * Units;
    std::copy_n(Hidden.data() + K * Width, Width, Next.data());
    std::copy_n(Out, Units, Next.data() + Width);
    gather({Next.data(), Gates.Inputs}, Active);
    Evaluate(Active, Gates.Weight.data() + K * Gates.Inputs * Gates.Outputs, Gates.Outputs,
             Gates.Bias.data() + K * Gates.Outputs, Sums.data());
    for (size_t U = 0; U < Units; ++U) {
      const double Enter = Sums[U], Keep = Sums[Units + U], New = Sums[2 * Units + U], Leave = Sums[3 * Units + U];
      Cell[U] = float(sigmoid(Keep) * Cell[U] + sigmoid(Enter) * std::tanh(New));
      Out[U] = float(sigmoid(Leave) * std::tanh(double(Cell[U])));
    }
  }
  std::copy(Memory.begin(), Memory.end(), Next.begin());
}

Span<float> Network::evaluate(Span<int16_t> Input) {
  First.evaluate(Input, Hidden.data());
  size_t Width = First.outputs();
  for (const Layer &Now : Layers) {
    const bool OfLstm = Units && &Now == &Layers.back(), IsLstm = Units && &Now + 1 == &Layers.back();
    for (size_t I = 0; I < Members * Width && !OfLstm; ++I)
      Hidden[I] = Hidden[I] > 0 ? Hidden[I] : 0;
    if (IsLstm) {
      recall(Now);
    } else if (Now.Outputs == 1) {
      size_t K = 0;
      auto Chains = [&](auto Function, size_t Count) {
        for (; K + Count <= Members; K += Count)
          Function(Hidden.data() + K * Now.Inputs, Now.Inputs, Now.Weight.data() + K * Now.Inputs, Now.Bias.data() + K,
                   Next.data() + K);
      };
      Chains(accumulateChains<6>, 6);
      Chains(accumulateChains<2>, 2);
      Chains(accumulateChains<1>, 1);
    } else {
      for (size_t K = 0; K < Members; ++K) {
        gather({Hidden.data() + K * Now.Inputs, Now.Inputs}, Active);
        Evaluate(Active, Now.Weight.data() + K * Now.Inputs * Now.Outputs, Now.Outputs,
                 Now.Bias.data() + K * Now.Outputs, Next.data() + K * Now.Outputs);
      }
    }
    Width = IsLstm ? Units : Now.Outputs;
    std::swap(Hidden, Next);
  }
  return {Hidden.data(), Members * Width};
}

} // namespace mlgokit
