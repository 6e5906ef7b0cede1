#include "shared/Settings.h"

#include "shared/Printable.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/CommandLine.h"

#include <cmath>
#include <cstdlib>

// Defined in the object that `mlgokit export plugin` links in; hidden, so that two plugins cannot see each other's.
#define MLGOKIT_EMBEDDED(NAME)                                                                                         \
  extern "C" {                                                                                                         \
  __attribute__((weak, visibility("hidden"))) extern const char mlgokit_##NAME##_begin[];                              \
  __attribute__((weak, visibility("hidden"))) extern const char mlgokit_##NAME##_end[];                                \
  }
MLGOKIT_EMBEDDED(inline_size)
MLGOKIT_EMBEDDED(regalloc_eviction)
MLGOKIT_EMBEDDED(regalloc_priority)
MLGOKIT_EMBEDDED(pass_selection)
MLGOKIT_EMBEDDED(regalloc_weight)
MLGOKIT_EMBEDDED(decisions)
MLGOKIT_EMBEDDED(allocations)
MLGOKIT_EMBEDDED(passes)
MLGOKIT_EMBEDDED(optimizer_passes)
#undef MLGOKIT_EMBEDDED

using namespace llvm;

namespace mlgokit {

namespace {

struct Name {
  const char *Option;
  const char *Variable;
  const char *Description;
};

// The first ten are the policy and the log of each problem, in the order of the enumeration.
constexpr Name Names[] = {
    {"mlgokit-policy", "MLGOKIT_POLICY", "inlining policy: file, or :default, :never, :always"},
    {"mlgokit-log", "MLGOKIT_LOG", "file to write the training log of inlining to"},
    {"mlgokit-eviction-policy", "MLGOKIT_EVICTION_POLICY", "eviction policy: file, or :default, :random, :first"},
    {"mlgokit-eviction-log", "MLGOKIT_EVICTION_LOG", "file to write the training log of eviction to"},
    {"mlgokit-priority-policy", "MLGOKIT_PRIORITY_POLICY", "priority policy: file, or :default, :random"},
    {"mlgokit-priority-log", "MLGOKIT_PRIORITY_LOG", "file to write the training log of priority to"},
    {"mlgokit-pass-policy", "MLGOKIT_PASS_POLICY", "policy of passes: file, or :default"},
    {"mlgokit-pass-log", "MLGOKIT_PASS_LOG", "file to write the training log of passes to"},
    {"mlgokit-weight-policy", "MLGOKIT_WEIGHT_POLICY", "policy of spill weights: file, or :default, :random"},
    {"mlgokit-weight-log", "MLGOKIT_WEIGHT_LOG", "file to write the training log of spill weights to"},
    {"mlgokit-seed", "MLGOKIT_SEED", "seed of the exploration"},
    {"mlgokit-temperature", "MLGOKIT_TEMPERATURE", "temperature of drawn decisions; 0 acts greedily"},
    {"mlgokit-flip-probability", "MLGOKIT_FLIP_PROBABILITY", "probability of flipping a decision"},
    {"mlgokit-any-level", "MLGOKIT_ANY_LEVEL",
     "1: also inline by policy in modules that are not compiled for size; 2: and however large they become"},
    {"mlgokit-lto", "MLGOKIT_LTO",
     "1: also inline by policy in link-time optimization and the compile steps before it"},
    {"mlgokit-decisions", "MLGOKIT_DECISIONS", "decision table that is asked before the inlining policy"},
    {"mlgokit-allocations", "MLGOKIT_ALLOCATIONS",
     "allocation table that is asked before eviction and priority policies"},
    {"mlgokit-passes", "MLGOKIT_PASSES", "table of passes that do not run on some functions in code generation"},
    {"mlgokit-log-default", "MLGOKIT_LOG_DEFAULT", "0: log LLVM's decision as -1 where the decision table decides"},
    {"mlgokit-keep-hot", "MLGOKIT_KEEP_HOT", "percent of a profile's executions whose functions are left to LLVM"},
    {"mlgokit-phase", "MLGOKIT_PHASE", "link: inline as LLVM does but in a full link-time optimization"},
    {"mlgokit-optimizer-passes", "MLGOKIT_OPTIMIZER_PASSES",
     "table of passes that do not run on some functions in the optimizer, from the inliner on"},
    {"mlgokit-replay-lines", "MLGOKIT_REPLAY_LINES",
     "file to write all inlining decisions to, for LLVM's inline replay"},
    {"mlgokit-describe", "MLGOKIT_DESCRIBE", "file to write the module's description to"},
};
constexpr size_t SeedAt = 2 * ProblemCount;
constexpr double MostKept = 99.9999; // beyond, LLVM's summary ends the compilation

/// Options outlive the plugin's own statics, as LLVM's registry keeps pointing at them.
cl::opt<std::string> *Options[std::size(Names)];

std::string valueOf(size_t I) {
  if (auto *Own = Options[I]; Own && Own->getNumOccurrences())
    return Own->getValue();
  const char *Value = std::getenv(Names[I].Variable);
  return Value ? Value : "";
}

/// What is linked in between two symbols; without them there is nothing.
StringRef bytesOf(const char *Begin, const char *End) {
  return Begin ? StringRef(Begin, size_t(End - Begin)) : StringRef();
}
#define MLGOKIT_BYTES(NAME) bytesOf(mlgokit_##NAME##_begin, mlgokit_##NAME##_end)

Expected<double> numberOf(size_t I) {
  const std::string Text = valueOf(I);
  double Value = 0;
  if (Text.empty())
    return Value;
  if (StringRef(Text).getAsDouble(Value) || !std::isfinite(Value) || Value < 0)
    return createStringError(inconvertibleErrorCode(), "-" + std::string(Names[I].Option) + " or " + Names[I].Variable +
                                                           ": expected a number of at least 0, found '" +
                                                           printable(Text) + "'");
  return Value;
}

} // namespace

StringRef nameOf(Problem P) {
  constexpr const char *ProblemNames[ProblemCount] = {"inline-size", "regalloc-eviction", "regalloc-priority",
                                                      "pass-selection", "regalloc-weight"};
  return ProblemNames[size_t(P)];
}

std::string policySettingOf(Problem P) {
  const Name &N = Names[2 * size_t(P)];
  return std::string(N.Variable) + " or -" + N.Option;
}

bool isGiven(StringRef Name) {
  const cl::Option *Option = cl::getRegisteredOptions().lookup(Name);
  return Option && Option->getNumOccurrences();
}

Error refuseOptions(ArrayRef<StringRef> OptionNames, StringRef Ours) {
  for (StringRef Name : OptionNames)
    if (isGiven(Name))
      return createStringError(inconvertibleErrorCode(), "expected either -" + Name.str() + " or " + Ours.str() +
                                                             ", found both; the plugin takes the place of the advisor "
                                                             "that the option chooses, so leave one out");
  return Error::success();
}

bool Settings::hasPolicy(Problem P) const { return !of(P).Policy.empty() || !embeddedPolicy(P).empty(); }

bool Settings::hasDecisions() const { return !Decisions.empty() || !embeddedDecisions().empty(); }

bool Settings::hasAllocations() const { return !Allocations.empty() || !embeddedAllocations().empty(); }

bool Settings::hasPasses() const { return !Passes.empty() || !embeddedPasses().empty(); }

bool Settings::hasOptimizerPasses() const { return !OptimizerPasses.empty() || !embeddedOptimizerPasses().empty(); }

void registerOptions() {
  for (size_t I = 0; I < std::size(Names); ++I)
    if (!cl::getRegisteredOptions().count(Names[I].Option))
      Options[I] = new cl::opt<std::string>(StringRef(Names[I].Option), cl::Hidden, cl::desc(Names[I].Description));
}

std::string descriptionPath() { return valueOf(SeedAt + 13); }

Expected<Settings> readSettings() {
  Settings S;
  for (size_t P = 0; P < ProblemCount; ++P)
    S.Problems[P] = {valueOf(2 * P), valueOf(2 * P + 1)};
  const std::string Seed = valueOf(SeedAt);
  if (!Seed.empty() && StringRef(Seed).getAsInteger(10, S.Seed))
    return createStringError(inconvertibleErrorCode(),
                             "-mlgokit-seed or MLGOKIT_SEED: expected an unsigned integer, found '" + printable(Seed) +
                                 "'");
  for (auto [I, Target] : {std::pair<size_t, double *>(SeedAt + 1, &S.Temperature),
                           {SeedAt + 2, &S.FlipProbability},
                           {SeedAt + 9, &S.KeepHot}}) {
    Expected<double> Value = numberOf(I);
    if (!Value)
      return Value.takeError();
    *Target = *Value;
  }
  if (S.FlipProbability > 1)
    return createStringError(inconvertibleErrorCode(),
                             "-mlgokit-flip-probability or MLGOKIT_FLIP_PROBABILITY: expected at most 1");
  if (S.KeepHot > MostKept)
    return createStringError(inconvertibleErrorCode(),
                             "-mlgokit-keep-hot or MLGOKIT_KEEP_HOT: expected at most 99.9999 percent");
  S.AnyGrowth = valueOf(SeedAt + 3) == "2";
  S.AnyLevel = S.AnyGrowth || valueOf(SeedAt + 3) == "1";
  S.InLto = valueOf(SeedAt + 4) == "1";
  S.Decisions = valueOf(SeedAt + 5);
  S.Allocations = valueOf(SeedAt + 6);
  S.Passes = valueOf(SeedAt + 7);
  S.LogDefault = valueOf(SeedAt + 8) != "0";
  S.OnlyAtLink = valueOf(SeedAt + 10) == "link";
  S.OptimizerPasses = valueOf(SeedAt + 11);
  S.ReplayLines = valueOf(SeedAt + 12);
  return S;
}

StringRef embeddedPolicy(Problem P) {
  const StringRef Embedded[ProblemCount] = {
      MLGOKIT_BYTES(inline_size),    MLGOKIT_BYTES(regalloc_eviction), MLGOKIT_BYTES(regalloc_priority),
      MLGOKIT_BYTES(pass_selection), MLGOKIT_BYTES(regalloc_weight),
  };
  return Embedded[size_t(P)];
}

StringRef embeddedDecisions() { return MLGOKIT_BYTES(decisions); }

StringRef embeddedAllocations() { return MLGOKIT_BYTES(allocations); }

StringRef embeddedPasses() { return MLGOKIT_BYTES(passes); }

StringRef embeddedOptimizerPasses() { return MLGOKIT_BYTES(optimizer_passes); }

} // namespace mlgokit
