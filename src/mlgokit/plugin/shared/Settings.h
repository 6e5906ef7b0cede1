// What the user asked of the plugin: command-line options first, then the environment, then the policies inside the
// file.
#ifndef MLGOKIT_SHARED_SETTINGS_H
#define MLGOKIT_SHARED_SETTINGS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/Error.h"

#include <array>
#include <cstdint>
#include <string>

namespace mlgokit {

enum class Problem : size_t { InlineSize, RegallocEviction, RegallocPriority, PassSelection, RegallocWeight };
inline constexpr size_t ProblemCount = 5;
inline constexpr Problem AllProblems[ProblemCount] = {Problem::InlineSize, Problem::RegallocEviction,
                                                      Problem::RegallocPriority, Problem::PassSelection,
                                                      Problem::RegallocWeight};

/// The name that a user types and a policy file carries.
llvm::StringRef nameOf(Problem P);

/// "MLGOKIT_POLICY or -mlgokit-policy", for messages.
std::string policySettingOf(Problem P);

/// Whether the user gave the option \p Name, which this compiler may not have.
bool isGiven(llvm::StringRef Name);

/// An error if the user gave one of LLVM's own options for the advisor that \p Ours, a setting or the plugin, replaces.
llvm::Error refuseOptions(llvm::ArrayRef<llvm::StringRef> OptionNames, llvm::StringRef Ours);

struct ProblemSettings {
  std::string Policy; // a path, or a rule such as :default; empty for the embedded policy
  std::string Log;    // where to write the training log; empty for none
};

struct Settings {
  std::array<ProblemSettings, ProblemCount> Problems;
  std::string Decisions;       // a decision table, asked before the inlining policy; empty for the embedded one
  std::string Allocations;     // an allocation table, asked before eviction and priority policies; likewise
  std::string Passes;          // a pass table, asked by the gate of code generation; likewise
  std::string OptimizerPasses; // a pass table, asked by the gate of the optimizer; likewise
  std::string ReplayLines;     // where to write all inlining decisions as LLVM's replay reads them; empty for nowhere
  uint64_t Seed = 0;           // of exploration
  double Temperature = 0;      // of the drawn decision; 0 acts greedily
  double FlipProbability = 0;  // of flipping a decision after that
  double KeepHot = 0;          // percent of a profile's executions whose functions are left to LLVM
  bool LogDefault = true;      // log the heuristic's decision also where the table decides; it costs a cost analysis
  bool OnlyAtLink = false;     // leave inlining to LLVM but in the pipeline of a full link-time optimization
  bool AnyLevel = false;       // also inline by the policy in modules that were not compiled for size
  bool AnyGrowth = false;      // let modules grow by inlining as LLVM's heuristic does, and not as its MLInlineAdvisor
  bool InLto = false;          // also inline by the policy in link-time optimization and the compile steps before it

  const ProblemSettings &of(Problem P) const { return Problems[size_t(P)]; }
  /// Whether somebody gave a policy for \p P, by name or inside the plugin.
  bool hasPolicy(Problem P) const;
  /// Whether there is a table of tuned inlining decisions, by name or inside the plugin.
  bool hasDecisions() const;
  /// Whether there is a table of tuned allocations, by name or inside the plugin.
  bool hasAllocations() const;
  /// Whether there is a table of passes that do not run, by name or inside the plugin.
  bool hasPasses() const;
  /// The same of the optimizer.
  bool hasOptimizerPasses() const;
};

/// Adds the options to LLVM's command line, unless another plugin of ours has done so.
void registerOptions();

/// Where to write the description of the module; empty for nowhere.
std::string descriptionPath();

/// Reads the settings; a value that is no number is an error naming the option or variable.
llvm::Expected<Settings> readSettings();

/// The policy for \p P linked into this very plugin (`mlgokit export plugin`), if there is one.
llvm::StringRef embeddedPolicy(Problem P);

/// The decision table linked into this very plugin (`mlgokit tune`), if there is one.
llvm::StringRef embeddedDecisions();

/// The allocation table, likewise.
llvm::StringRef embeddedAllocations();

/// The pass table, likewise.
llvm::StringRef embeddedPasses();

/// The pass table of the optimizer, likewise.
llvm::StringRef embeddedOptimizerPasses();

} // namespace mlgokit

#endif
