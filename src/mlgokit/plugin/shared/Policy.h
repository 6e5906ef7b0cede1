// A policy file (safetensors with a JSON description, see docs/formats.md) and its evaluation.
//
// The arithmetic is fixed to the last bit so that mlgokit/policy/network.py computes the very same numbers:
// normalisation in double, the first layer in integers, the others in float with one multiplication and one addition
// per weight, inputs in order.
#ifndef MLGOKIT_SHARED_POLICY_H
#define MLGOKIT_SHARED_POLICY_H

#include "shared/Network.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace mlgokit {

enum class NormaliserKind { SignedLog, Quantile };
enum class OutputKind { EffectBytes, Logits, ColumnLogit, Priority };

class Policy {
public:
  /// Reads the bytes of a policy file; every length is checked. \p Origin names the file in messages.
  static llvm::Expected<Policy> parse(llvm::StringRef Bytes, llvm::StringRef Origin);

  const std::vector<std::string> &features() const { return Features; }
  const std::string &problem() const { return Problem; }
  const std::string &origin() const { return Origin; }

  OutputKind output() const { return Output; }
  /// The feature that is 0 in the columns that may not be chosen, for OutputKind::ColumnLogit.
  const std::string &mask() const { return Mask; }

  /// The name of the feature that chooses the gate's margin; empty without a gate.
  llvm::StringRef gateFeature() const { return Gate ? llvm::StringRef(Features[*Gate]) : ""; }
  /// Whether any effect is believed where the gate's feature is set, or not: nothing is beyond an infinite margin.
  bool believes(bool IsSet) const { return !Gate || std::isfinite(Margins[IsSet]); }

  /// The preference for inlining: positive means inline. \p Values holds one raw value per feature of features().
  /// \p Heuristic says whether LLVM would inline, and is asked only where the policy is not believed: by its gate, or
  /// since its members disagree.
  double preference(llvm::ArrayRef<double> Values, llvm::function_ref<bool()> Heuristic);
  /// The unnormalised log-probability of one column, always finite.
  double columnLogit(llvm::ArrayRef<double> Values);
  /// The unit number of a live range, never NaN; greater is allocated earlier.
  double unit(llvm::ArrayRef<double> Values);

private:
  llvm::Error parseGate(const llvm::json::Object &Description);
  llvm::Error parseRowLengths(const llvm::json::Object &Description);
  double largestInput() const;
  void normalise(llvm::ArrayRef<double> Values);
  /// Average and standard deviation of the members' answers.
  std::pair<double, double> summary(llvm::ArrayRef<double> Values);

  std::string Problem, Origin, Mask;
  std::vector<std::string> Features;
  NormaliserKind Normaliser = NormaliserKind::SignedLog;
  OutputKind Output = OutputKind::EffectBytes;
  double Clip = 0;
  double BytesPerUnit = 1;          // of the logit, for OutputKind::EffectBytes
  double Caution = 0;               // standard deviations of the members by which a column's logit is worse
  double Doubt = 0;                 // standard deviations that an effect must exceed beyond its margin to be believed
  std::optional<size_t> Gate;       // the feature that says which of Margins an effect must exceed to be believed
  double Margins[2] = {0, 0};       // bytes: where that feature is 0, and where it is not
  std::vector<double> Mean, Scale;  // [F] of SignedLog
  InputScale Scaled;                // of normalised values
  std::vector<int16_t> SmallValues; // [F, 512] inputs for -256..255; NotAnInput until one is asked for
  std::vector<double> LastLarge;    // [F] the last value that is not among those
  std::vector<int16_t> LastLargeInput; // [F] and what it became: features of the caller come again and again
  std::vector<float> Boundaries;       // [F, Q] of Quantile
  size_t QuantileCount = 0;
  std::vector<size_t> RowLengths; // [F] of Quantile: how many of each row are boundaries
  Network Networks;
  std::vector<int16_t> Input; // scratch
};

} // namespace mlgokit

#endif
