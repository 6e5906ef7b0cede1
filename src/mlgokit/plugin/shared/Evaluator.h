// What a policy computes, without its file: numbers to a normaliser and networks.
//
// The arithmetic is fixed to the last bit so that mlgokit/policy/network.py computes the very same numbers:
// normalisation in double, the first layer in integers, the others in float with one multiplication and one addition
// per weight, inputs in order.
//
// Nothing here includes a header of LLVM, for the reason that Span.h has.
#ifndef MLGOKIT_SHARED_EVALUATOR_H
#define MLGOKIT_SHARED_EVALUATOR_H

#include "shared/Network.h"
#include "shared/Span.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace mlgokit {

enum class NormaliserKind { SignedLog, Quantile };
enum class OutputKind { EffectBytes, Logits, ColumnLogit, Priority, Log2Factor };

/// The numbers of a policy. Vectors have the sizes that are beside them, and rows of boundaries are sorted.
struct PolicyNumbers {
  size_t Features = 0;
  NormaliserKind Normaliser = NormaliserKind::SignedLog;
  OutputKind Output = OutputKind::EffectBytes;
  double Clip = 0;
  double BytesPerUnit = 1;         // of the preference, for effects
  double Caution = 0;              // standard deviations of the members by which a column's logit is worse
  double Doubt = 0;                // standard deviations that an effect must exceed beyond its margin to be believed
  std::optional<size_t> Gate;      // the feature that says which of Margins an effect must exceed to be believed
  double Margins[2] = {0, 0};      // bytes: where that feature is 0, and where it is not
  std::vector<double> Mean, Scale; // [F] of SignedLog
  std::vector<float> Boundaries;   // [F, Q] of Quantile
  size_t QuantileCount = 0;
  std::vector<size_t> RowLengths; // [F] of Quantile: how many of each row are boundaries
  double Nan = 0;                 // of Quantile: what NaN counts as
  size_t Members = 0;
  std::vector<Layer> Layers;
  size_t Recurrent = 0; // units of the LSTM that the layer before the last is, if it is one
};

class Evaluator {
public:
  Evaluator() = default;
  explicit Evaluator(PolicyNumbers Numbers);

  OutputKind output() const { return N.Output; }
  /// Whether a decision depends on all before it.
  bool isRecurrent() const { return N.Recurrent != 0; }
  /// The feature that chooses the gate's margin, if there is a gate.
  std::optional<size_t> gate() const { return N.Gate; }
  /// Whether any effect is believed where the gate's feature is set, or not: nothing is beyond an infinite margin.
  bool believes(bool IsSet) const { return !N.Gate || std::isfinite(N.Margins[IsSet]); }

  /// The preference for inlining: positive means inline. \p Values holds one raw value per feature. None where the
  /// policy is not believed: by its gate, or since its members disagree.
  std::optional<double> preference(Span<double> Values);
  /// The unnormalised log-probability of one column, always finite.
  double columnLogit(Span<double> Values);
  /// The unit number of a live range, never NaN; greater is allocated earlier, or kept in its register.
  double unit(Span<double> Values);

private:
  double largestInput() const;
  void normalise(Span<double> Values);
  /// Average and standard deviation of the members' answers.
  std::pair<double, double> summary(Span<double> Values);

  PolicyNumbers N;
  InputScale Scaled;                   // of normalised values
  std::vector<int16_t> SmallValues;    // [F, 512] inputs for -256..255; NotAnInput until one is asked for
  std::vector<double> LastLarge;       // [F] the last value that is not among those
  std::vector<int16_t> LastLargeInput; // [F] and what it became: features of the caller come again and again
  Network Networks;
  std::vector<int16_t> Input; // scratch
};

} // namespace mlgokit

#endif
