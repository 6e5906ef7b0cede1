// A policy file (safetensors with a JSON description, see docs/formats.md) and its evaluation.
#ifndef MLGOKIT_SHARED_POLICY_H
#define MLGOKIT_SHARED_POLICY_H

#include "shared/Evaluator.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <string>
#include <vector>

namespace llvm {
class Module;
} // namespace llvm

namespace mlgokit {

/// Units for what LLVM decides: hardly a temperature explores it.
inline constexpr double HeuristicPreference = 2;

struct TensorFile;

/// What a policy decides about: all of a compilation, or what a linker compiles with link-time optimization.
enum class PolicyStage { Compile, Link };

/// The architecture of \p M's code, where ARM's two instruction sets are one, but not cores without Thumb-2;
/// `architecture_of` in module.py is the twin.
llvm::StringRef architectureOf(const llvm::Module &M);

class Policy {
public:
  /// Reads the bytes of a policy file; every length is checked. \p Origin names the file in messages. Of a file with
  /// several parts, each for other processors or another stage, the one for \p Architecture and \p Stage is read, else
  /// one for \p Architecture, else the first.
  static llvm::Expected<Policy> parse(llvm::StringRef Bytes, llvm::StringRef Origin, llvm::StringRef Architecture = "",
                                      PolicyStage Stage = PolicyStage::Compile);

  const std::vector<std::string> &features() const { return Features; }
  const std::string &problem() const { return Problem; }
  const std::string &origin() const { return Origin; }

  /// Whether it decides for code of \p M's target; elsewhere every decision is LLVM's.
  bool isFor(const llvm::Module &M) const;
  PolicyStage stage() const { return Stage; }
  /// Whether a decision depends on all before it. A module has a policy of its own, so that none knows of another's.
  bool isRecurrent() const { return Numbers.isRecurrent(); }

  OutputKind output() const { return Numbers.output(); }
  /// The feature that is 0 in the columns that may not be chosen, for OutputKind::ColumnLogit.
  const std::string &mask() const { return Mask; }

  /// The name of the feature that chooses the gate's margin; empty without a gate.
  llvm::StringRef gateFeature() const { return Numbers.gate() ? llvm::StringRef(Features[*Numbers.gate()]) : ""; }
  bool believes(bool IsSet) const { return Numbers.believes(IsSet); }

  /// As Evaluator::preference. \p Heuristic says whether LLVM would inline, and is asked only where the policy is not
  /// believed.
  double preference(llvm::ArrayRef<double> Values, llvm::function_ref<bool()> Heuristic);
  double columnLogit(llvm::ArrayRef<double> Values) { return Numbers.columnLogit(Values); }
  /// LLVM's cost of the first use of a callee-saved register, for OutputKind::Log2Factor; 0 leaves it to LLVM.
  unsigned csrFirstTimeCost() const { return CsrFirstTimeCost; }
  double unit(llvm::ArrayRef<double> Values) { return Numbers.unit(Values); }

private:
  static llvm::Expected<Policy> parsePart(const llvm::json::Object &Description, TensorFile &Tensors,
                                          llvm::StringRef Origin);

  std::string Problem, Origin, Mask;
  std::vector<std::string> Features, Targets;
  PolicyStage Stage = PolicyStage::Compile;
  unsigned CsrFirstTimeCost = 0;
  Evaluator Numbers;
};

} // namespace mlgokit

#endif
