// How one function is allocated otherwise than LLVM would.
#ifndef MLGOKIT_REGALLOC_FUNCTIONPLAN_H
#define MLGOKIT_REGALLOC_FUNCTIONPLAN_H

#include "regalloc/FunctionShape.h"
#include "trials/OverridePlan.h"

#include "llvm/ADT/ArrayRef.h"

#include <optional>
#include <vector>

namespace mlgokit {

struct FunctionPlan {
  FunctionShape Shape;
  OverridePlan Evictions, Priorities;
  bool ByRule = false;              // what is not overridden is decided by the rule or the policy of the settings
  llvm::StringRef TriedPolicy = {}; // the bytes of one that decides instead; empty for none
  std::vector<unsigned> Given = {}; // priorities so far

  bool hasTriedPolicy() const { return !TriedPolicy.empty(); }
  /// The priority to give instead of LLVM's.
  unsigned priority(unsigned Default, const std::optional<PlannedOverride> &Wanted);
  /// As near to \p Wanted as a choice can say.
  unsigned priorityNear(unsigned Wanted, unsigned Default);
};

} // namespace mlgokit

#endif
