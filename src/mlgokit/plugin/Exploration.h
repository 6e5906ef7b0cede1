// Random numbers that mlgokit/policy/exploration.py draws as well.
#ifndef MLGOKIT_EXPLORATION_H
#define MLGOKIT_EXPLORATION_H

#include <cstdint>

namespace mlgokit {

/// Uniform numbers in [0, 1), two per decision: SplitMix64 (Steele, Lea, Flood 2014) of the seed and a counter.
class Uniform {
public:
  explicit Uniform(uint64_t Seed) : State(Seed) {}
  double next() {
    State += 0x9E3779B97F4A7C15;
    uint64_t Z = State;
    Z = (Z ^ (Z >> 30)) * 0xBF58476D1CE4E5B9;
    Z = (Z ^ (Z >> 27)) * 0x94D049BB133111EB;
    Z ^= Z >> 31;
    return double(Z >> 11) * 0x1.0p-53;
  }

private:
  uint64_t State;
};

} // namespace mlgokit

#endif
