// The networks of a policy, all members of an ensemble at once. The arithmetic is that of policy/network.py to the bit.
#ifndef MLGOKIT_SHARED_NETWORK_H
#define MLGOKIT_SHARED_NETWORK_H

#include "shared/FirstLayer.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace mlgokit {

/// The inputs of a layer that are not 0: where they are, and what they are.
struct ActiveInputs {
  size_t Count = 0;
  std::vector<uint32_t> Index;
  std::vector<float> Value;
};

class Network {
public:
  Network() = default;
  /// Outputs of each layer are inputs of the next; there is at least one layer and one member. With \p Units the layer
  /// before the last, which is not the first, is an LSTM of so many, whose last inputs are its own outputs.
  Network(size_t Members, std::vector<Layer> Layers, const InputScale &Scale, size_t Units = 0);

  size_t members() const { return Members; }
  size_t inputs() const { return First.inputs(); }
  /// The last layer's outputs of all members for one input, [K, Outputs]; valid until the next call. With an LSTM, they
  /// depend on all inputs since the network was made, in their order.
  Span<float> evaluate(Span<int16_t> Input);

private:
  using LayerFunction = void (*)(const ActiveInputs &, const float *, size_t, const float *, float *);

  void recall(const Layer &Gates);

  size_t Members = 0, Units = 0;
  FirstLayer First;
  std::vector<Layer> Layers;        // all others
  std::vector<float> Memory, Cells; // [K, Units] of the LSTM: its last outputs, and its cells
  LayerFunction Evaluate = nullptr; // of one layer of one member, for this processor
  ActiveInputs Active;              // scratch, as all below
  std::vector<float> Hidden, Next;  // [K, widest layer]
  std::vector<float> Sums;          // [4 * Units] of the gates: input, forget, cell and output
};

} // namespace mlgokit

#endif
