// What the plugin itself observes about a call site, beside the features of LLVM's MLInlineAdvisor.
//
// LLVM's features say little about what becomes of the callee: whether its body dies, who else calls it, what it is
// made of, whether the linker will merge it. Those decide size. Every feature is one int64_t, named in docs/formats.md.
#ifndef MLGOKIT_INLINER_FEATURES_H
#define MLGOKIT_INLINER_FEATURES_H

#include "inliner/BodyCounts.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/IR/InstrTypes.h"

#include <array>
#include <cstdint>

// The order is the order in the log. Add at the end.
#define MLGOKIT_FEATURES(M)                                                                                            \
  M(callee_instructions)                                                                                               \
  M(caller_instructions)                                                                                               \
  M(callee_loads)                                                                                                      \
  M(callee_stores)                                                                                                     \
  M(callee_defined_calls)                                                                                              \
  M(callee_declared_calls)                                                                                             \
  M(callee_indirect_calls)                                                                                             \
  M(callee_invokes)                                                                                                    \
  M(callee_landing_pads)                                                                                               \
  M(callee_conditional_branches)                                                                                       \
  M(callee_switches)                                                                                                   \
  M(callee_returns)                                                                                                    \
  M(callee_unreachables)                                                                                               \
  M(callee_allocas)                                                                                                    \
  M(callee_address_computations)                                                                                       \
  M(callee_phis)                                                                                                       \
  M(callee_arguments)                                                                                                  \
  M(callee_stack_arguments)                                                                                            \
  M(callee_is_local)                                                                                                   \
  M(callee_is_discardable)                                                                                             \
  M(caller_is_local)                                                                                                   \
  M(caller_is_discardable)                                                                                             \
  M(callee_call_sites)                                                                                                 \
  M(callee_call_sites_in_caller)                                                                                       \
  M(callee_other_uses)                                                                                                 \
  M(callee_dies)                                                                                                       \
  M(callee_inlined_before)                                                                                             \
  M(callee_refused_before)                                                                                             \
  M(callee_has_unwind_table)                                                                                           \
  M(callee_cannot_throw)                                                                                               \
  M(caller_has_personality)                                                                                            \
  M(call_is_invoke)                                                                                                    \
  M(call_result_is_used)                                                                                               \
  M(call_stack_arguments)                                                                                              \
  M(call_global_arguments)                                                                                             \
  M(call_block_is_unlikely)                                                                                            \
  M(call_is_in_cleanup)                                                                                                \
  M(callee_is_standard_library)                                                                                        \
  M(caller_is_standard_library)                                                                                        \
  M(callee_name_length)                                                                                                \
  M(caller_name_length)

namespace mlgokit {

enum class Feature : size_t {
#define MLGOKIT_ENUMERATE(NAME) NAME,
  MLGOKIT_FEATURES(MLGOKIT_ENUMERATE)
#undef MLGOKIT_ENUMERATE
};

inline constexpr const char *FeatureNames[] = {
#define MLGOKIT_NAME(NAME) #NAME,
    MLGOKIT_FEATURES(MLGOKIT_NAME)
#undef MLGOKIT_NAME
};
inline constexpr size_t FeatureCount = sizeof(FeatureNames) / sizeof(FeatureNames[0]);

using FeatureValues = std::array<int64_t, FeatureCount>;

/// Counts that depend on the body of a function alone.
struct BodySummary {
  int64_t Instructions = -1; // the size at which the summary was taken; another size makes it stale
  int64_t DeclaredCalls = 0, IndirectCalls = 0, Invokes = 0, LandingPads = 0, ConditionalBranches = 0, Switches = 0,
          Returns = 0, Unreachables = 0, Allocas = 0, AddressComputations = 0, Phis = 0;
};

/// Observes call sites of one module; remembers bodies until forget() and decisions for ever.
class CallSiteObserver {
public:
  void observe(llvm::CallBase &Call, const BodyCounts &Caller, const BodyCounts &Callee, FeatureValues &Values);
  void decided(const llvm::Function &Callee, bool Inline);
  void forget() { Bodies.clear(); }

private:
  const BodySummary &summarise(const llvm::Function &F, int64_t Instructions);

  llvm::DenseMap<const llvm::Function *, BodySummary> Bodies;
  llvm::DenseMap<const llvm::Function *, std::pair<int64_t, int64_t>> Decisions; // inlined, refused
};

/// Whether a function is left out where nobody uses it, and the linker may have another copy: `callee_is_discardable`.
bool isDiscardable(const llvm::Function &F);

/// The number under which a function is known outside the compiler: the low 64 bits of the MD5 of its name.
int64_t functionId(const llvm::Function &F);

} // namespace mlgokit

#endif
