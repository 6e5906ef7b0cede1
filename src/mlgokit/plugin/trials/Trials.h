// Many trials of one function within one compilation, each in a copy of the compiler: docs/formats.md, "Trials".
#ifndef MLGOKIT_TRIALS_TRIALS_H
#define MLGOKIT_TRIALS_TRIALS_H

#include "trials/Overrides.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/Function.h"

#include <cstdint>
#include <functional>

namespace llvm {
class MachineFunction;
}

namespace mlgokit {

/// When copies are made of a function: before it is allocated, or before its code is generated.
enum class Stage : uint32_t { Registers = 1, Passes = 2 };

/// One trial, beside what it departs from.
struct Trial {
  double EvictionFlips;
  double PriorityFlips;
  uint64_t Seed;
  uint32_t ByRule;  // who decides the rest: 0, LLVM; BySettings; or a policy of the request, from FirstPolicy on
  uint32_t Toggles; // how many there are
  Override Toggled[4];
};
static_assert(sizeof(Trial) == 64, "as in files");

constexpr uint32_t BySettings = 1, FirstPolicy = 2;

/// The bytes of the policy that decides in this trial; empty if it is none of the request's.
llvm::StringRef triedPolicy(const Trial &T);

/// Whether MLGOKIT_TRIALS names trials to make of functions at this stage, or wants them listed.
bool hasTrials(Stage At);

/// A function of which trials are made.
struct TrialSubject {
  Stage At;
  uint64_t Key;
  const llvm::Function &Function;
  std::function<llvm::MachineFunction *()> Code; // none before instructions are selected
};

/// Makes the trials of a function, each in a copy of the process; what they cost goes to MLGOKIT_TRIED. Returns true in
/// each copy after a call of \p Begin with what to depart from and the trial, at last false in this process.
bool runTrials(const TrialSubject &Subject, llvm::function_ref<void(const Overrides &, const Trial &)> Begin);

} // namespace mlgokit

#endif
