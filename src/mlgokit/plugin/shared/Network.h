// The networks of a policy, all members of an ensemble at once. The arithmetic is that of policy/network.py to the bit.
#ifndef MLGOKIT_SHARED_NETWORK_H
#define MLGOKIT_SHARED_NETWORK_H

#include "llvm/ADT/ArrayRef.h"

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

/// The inputs of a layer that are not 0: where they are, and what they are.
struct ActiveInputs {
  size_t Count = 0;
  std::vector<uint32_t> Index;
  std::vector<float> Value;
};

class Network {
public:
  Network() = default;
  /// Outputs of each layer are inputs of the next; there is at least one layer and one member.
  Network(size_t Members, std::vector<Layer> Layers);

  size_t members() const { return Members; }
  size_t inputs() const { return Layers.front().Inputs; }
  /// The last layer's outputs of all members for one input, [K, Outputs]; valid until the next call.
  llvm::ArrayRef<float> evaluate(llvm::ArrayRef<float> Input);

private:
  using LayerFunction = void (*)(const ActiveInputs &, const float *, size_t, const float *, float *);

  size_t Members = 0;
  std::vector<Layer> Layers;
  LayerFunction Evaluate = nullptr; // of one layer of one member, for this processor
  ActiveInputs First, Active;       // scratch, as all below
  std::vector<float> Hidden, Next;  // [K, widest layer]
};

} // namespace mlgokit

#endif
