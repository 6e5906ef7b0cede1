// The first layer of a policy's networks, in integers. The arithmetic is that
// of policy/network.py to the bit.
//
// It has most of the weights, and between two decisions most inputs stay as
// they were. Sums of integers are the same in any order, so that only what
// changed is added to those of the decision before.
#ifndef MLGOKIT_SHARED_FIRSTLAYER_H
#define MLGOKIT_SHARED_FIRSTLAYER_H

#include "shared/Span.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlgokit {

/// One dense layer of each of K networks. Every weight is finite.
struct Layer {
  size_t Inputs = 0;
  size_t Outputs = 0;
  std::vector<float> Weight; // [K, Inputs, Outputs]
  std::vector<float> Bias;   // [K, Outputs]
};

/// Makes integers of inputs that are not beyond a bound.
class InputScale {
public:
  InputScale() = default;
  explicit InputScale(double Bound);

  int16_t operator()(float Input) const;
  /// By which power of two inputs are multiplied.
  int exponent() const { return Exponent; }

private:
  double Bound = 1, Scale = 1;
  int Exponent = 0;
};

/// Two inputs that changed, as the processor takes them: the numbers by which
/// they did, side by side.
struct ChangedPairs {
  size_t Count = 0;
  std::vector<uint32_t> Index;
  std::vector<int32_t> Both;
};

class FirstLayer {
public:
  FirstLayer() = default;
  FirstLayer(size_t Members, const Layer &Floats, const InputScale &Scale);

  size_t inputs() const { return Inputs; }
  size_t outputs() const { return Outputs; }
  /// The layer's outputs of all members, [K, outputs()], into \p Out.
  void evaluate(Span<int16_t> Input, float *Out);

private:
  using AddFunction = void (*)(const ChangedPairs &, const int16_t *, size_t, int32_t *);

  size_t Members = 0, Inputs = 0, Outputs = 0, Pairs = 0;
  std::vector<int16_t> Weight; // [K, Pairs, Outputs, 2]
  std::vector<double> Scale;   // [K] of a sum
  AddFunction Add = nullptr;   // to the sums of one member, for this processor
  std::vector<int16_t> Last;   // [2 * Pairs] the inputs that Sums are of
  std::vector<int32_t> Sums;   // [K, Outputs]
  std::vector<int16_t> Change; // [2 * Pairs] scratch, as Changed
  ChangedPairs Changed;
};

} // namespace mlgokit

#endif
