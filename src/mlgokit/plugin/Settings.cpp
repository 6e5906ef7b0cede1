#include "Settings.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Support/CommandLine.h"

#include <cmath>
#include <cstdlib>

// Defined in the object that `mlgokit export plugin` links in; hidden, so that two plugins cannot see each other's.
extern "C" {
__attribute__((weak, visibility("hidden"))) extern const char mlgokit_policy_begin[];
__attribute__((weak, visibility("hidden"))) extern const char mlgokit_policy_end[];
}

using namespace llvm;

namespace mlgokit {

namespace {

struct Name {
  const char *Option;
  const char *Variable;
  const char *Description;
};

constexpr Name Names[] = {
    {"mlgokit-policy", "MLGOKIT_POLICY", "policy file, or :default, :never, :always"},
    {"mlgokit-log", "MLGOKIT_LOG", "file to write the training log to"},
    {"mlgokit-seed", "MLGOKIT_SEED", "seed of the exploration"},
    {"mlgokit-temperature", "MLGOKIT_TEMPERATURE", "temperature of sampled decisions; 0 acts greedily"},
    {"mlgokit-flip-probability", "MLGOKIT_FLIP_PROBABILITY", "probability of turning a decision round"},
    {"mlgokit-any-level", "MLGOKIT_ANY_LEVEL", "1: also decide in modules that are not compiled for size"},
};

/// Options outlive the plugin's own statics, as LLVM's registry keeps pointing at them.
cl::opt<std::string> *Options[std::size(Names)];

std::string valueOf(size_t I) {
  if (auto *Own = Options[I]; Own && Own->getNumOccurrences())
    return Own->getValue();
  const char *Value = std::getenv(Names[I].Variable);
  return Value ? Value : "";
}

Expected<double> numberOf(size_t I) {
  const std::string Text = valueOf(I);
  double Value = 0;
  if (Text.empty())
    return Value;
  if (StringRef(Text).getAsDouble(Value) || !std::isfinite(Value) || Value < 0)
    return createStringError(inconvertibleErrorCode(),
                             "-" + std::string(Names[I].Option) + " or " + Names[I].Variable +
                                 ": expected a number of at least 0, found '" + Text + "'");
  return Value;
}

} // namespace

void registerOptions() {
  for (size_t I = 0; I < std::size(Names); ++I)
    if (!cl::getRegisteredOptions().count(Names[I].Option))
      Options[I] = new cl::opt<std::string>(StringRef(Names[I].Option), cl::Hidden, cl::desc(Names[I].Description));
}

Expected<Settings> readSettings() {
  Settings S;
  S.Policy = valueOf(0);
  S.Log = valueOf(1);
  const std::string Seed = valueOf(2);
  if (!Seed.empty() && StringRef(Seed).getAsInteger(10, S.Seed))
    return createStringError(inconvertibleErrorCode(),
                             "-mlgokit-seed or MLGOKIT_SEED: expected an unsigned integer, found '" + Seed + "'");
  for (auto [I, Target] : {std::pair<size_t, double *>(3, &S.Temperature), {4, &S.FlipProbability}}) {
    Expected<double> Value = numberOf(I);
    if (!Value)
      return Value.takeError();
    *Target = *Value;
  }
  if (S.FlipProbability > 1)
    return createStringError(inconvertibleErrorCode(),
                             "-mlgokit-flip-probability or MLGOKIT_FLIP_PROBABILITY: expected at most 1");
  S.AnyLevel = valueOf(5) == "1";
  return S;
}

StringRef embeddedPolicy() {
  if (!mlgokit_policy_begin)
    return {};
  return {mlgokit_policy_begin, size_t(mlgokit_policy_end - mlgokit_policy_begin)};
}

} // namespace mlgokit
