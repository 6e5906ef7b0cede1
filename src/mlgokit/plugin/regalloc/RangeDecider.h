// What a rule or a policy says about one live range, with its log: the same for its priority and for its weight.
#ifndef MLGOKIT_REGALLOC_RANGEDECIDER_H
#define MLGOKIT_REGALLOC_RANGEDECIDER_H

#include "regalloc/FunctionLog.h"
#include "shared/Choice.h"
#include "shared/Exploration.h"
#include "shared/Files.h"
#include "shared/Policy.h"
#include "shared/Settings.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace mlgokit {

/// What is known about a live range: LLVM's three features, then ours.
struct RangeValues {
  int64_t Size = 0, Stage = 0;
  float Weight = 0;
  std::vector<float> Ours;
};

/// Whether \p P leaves all live ranges of \p MF to LLVM, as its gate goes by the level at which they are compiled, or
/// as it cannot be believed there, or as the function is compiled for size and has many targets of a jump.
bool isClosedIn(const Policy &P, const llvm::MachineFunction &MF);

/// Decides for the live ranges of one module.
class RangeDecider {
public:
  /// How the numbers of a policy become decisions.
  struct Kind {
    Problem Of;
    const char *Decision, *Default; // columns of the log
    bool HasWholeDefault;           // and whether the latter is a whole number
    RangeDecision (*Draw)(double Unit, const Spread &S, const mlgokit::Draw &D);
    RangeDecision (*Any)(const mlgokit::Draw &D);
  };

  explicit RangeDecider(const Kind &K) : K(K) {}

  /// For the code generation of \p M.
  llvm::Error open(const Settings &S, const llvm::Module &M);
  /// Lets a policy decide from now on, whatever target it is for.
  llvm::Error decideBy(llvm::Expected<Policy> Loaded);

  /// Whether anything but the heuristic is wanted, or somebody reads how that came to its values.
  bool isWanted() const { return R != Rule::Default || bool(Log); }
  /// The same for one function: a policy whose gate is closed there has nothing to say.
  bool isWantedIn(const llvm::MachineFunction &MF) const;
  bool followsHeuristic() const { return R == Rule::Default; }
  /// Whether features of ours are read.
  bool seesOurs() const { return SeesOurs; }

  /// The decision about a live range of \p MF; none if it is the heuristic's. \p AskHeuristic gives the latter.
  std::optional<float> decide(const llvm::MachineFunction &MF, const RangeValues &Values,
                              llvm::function_ref<unsigned()> AskHeuristic);

  void enter(const llvm::MachineFunction &MF);
  /// Takes what LLVM says of the allocation of \p Function into the log.
  void finish(llvm::StringRef Function, llvm::function_ref<float()> Score) { Log.finish(Function, Score); }

private:
  enum class Rule { Policy, Default, Random };

  void write(const RangeValues &Values, unsigned Default, const RangeDecision &Decided);

  const Kind &K;
  Rule R = Rule::Default;
  double Temperature = 0;
  std::optional<Policy> P;
  std::vector<size_t> Sources;
  std::optional<size_t> GateAt; // which of these the policy's gate goes by
  bool SeesOurs = false;
  FunctionLog Log;
  std::string Function;
  bool IsClosed = false; // whether the policy has nothing to say in it
  std::optional<FunctionDraws> Draws;
};

} // namespace mlgokit

#endif
