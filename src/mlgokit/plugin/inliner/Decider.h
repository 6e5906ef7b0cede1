// What answers the inliner's questions: a rule, a policy or a table; explored, and logged.
//
// Whoever asks gathers what is known of a call site: an advisor of LLVM's (LlvmAdvisor.h), or ours (PolicyAdvisor.h).
#ifndef MLGOKIT_INLINER_DECIDER_H
#define MLGOKIT_INLINER_DECIDER_H

#include "inliner/BodyCounts.h"
#include "inliner/DecisionTable.h"
#include "inliner/Features.h"
#include "inliner/SiteKeys.h"
#include "shared/Policy.h"
#include "shared/Settings.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Analysis/InlineModelFeatureMaps.h"
#include "llvm/Analysis/Utils/TrainingLogger.h"

#include <memory>
#include <optional>
#include <vector>

namespace mlgokit {

enum class Rule { Policy, Default, Never, Always };

/// The columns of the inliner's log.
std::vector<llvm::TensorSpec> logColumns();

class Decider {
public:
  /// \p Sources says where each of the policy's features is: LLVM's come first, then the plugin's. \p Tuned is the
  /// module's part of \p Table.
  Decider(llvm::Module &M, const Settings &S, Rule R, std::optional<Policy> P, std::vector<size_t> Sources,
          std::optional<DecisionTable> Table, const DecisionTable::Entry *Tuned, std::unique_ptr<llvm::Logger> Log);

  /// Whether somebody reads a feature of LLVM's.
  bool reads(llvm::FeatureIndex Index) const { return Log || llvm::is_contained(Sources, size_t(Index)); }
  /// Whether a policy decides by itself, and leaves all calls of callees of this kind to LLVM's heuristic.
  bool leavesToHeuristic(bool CalleeIsDiscardable) const { return LooksEarly && !P->believes(CalleeIsDiscardable); }

  /// Whether to inline \p Call. \p Known are LLVM's features; \p Heuristic is LLVM's own decision, which is only taken
  /// where somebody reads it.
  bool decide(llvm::CallBase &Call, llvm::ArrayRef<int64_t> Known, const BodyCounts &Caller, const BodyCounts &Callee,
              llvm::function_ref<bool()> Heuristic);
  /// Whether the module may grow as far as the decisions make it, and not just as far as LLVM lets a policy go.
  bool mayGrow() const { return S.AnyGrowth || (Tuned && Tuned->AnyLevel) || (P && P->stage() == PolicyStage::Link); }
  /// Remembers a decision that was taken elsewhere.
  void decided(const llvm::Function &Callee, bool Inline) { Observer.decided(Callee, Inline); }
  /// The inliner comes to other functions.
  void enterComponent() {
    Observer.forget();
    Ids.clear();
  }
  /// Keys of call sites, which want to know what is inlined; null if nobody reads them.
  SiteKeys *keys() { return Keys ? &*Keys : nullptr; }

private:
  /// Whether the calls in \p Caller are left to LLVM's heuristic.
  bool isKept(const llvm::Function &Caller) const;
  int64_t idOf(const llvm::Function &F);
  void record(llvm::CallBase &Call, llvm::ArrayRef<int64_t> Known, uint64_t Site, int64_t ByTable, int64_t Default,
              int64_t Inline, float LogProbability);

  const Settings S;
  const Rule R;
  const llvm::StringSet<> Hot; // functions that are left to LLVM, the calls in them and what is allocated there
  std::optional<Policy> P;
  const std::vector<size_t> Sources;
  std::optional<DecisionTable> Table;
  const DecisionTable::Entry *Tuned;
  std::unique_ptr<llvm::Logger> Log;
  std::optional<SiteKeys> Keys;
  bool LooksEarly = false; // the policy's gate goes by what is known before any feature is computed
  uint64_t Asked = 0;
  CallSiteObserver Observer;
  FeatureValues Extra{};
  llvm::DenseMap<const llvm::Function *, int64_t> Ids; // while none can be deleted
  std::vector<double> Row = std::vector<double>(Sources.size());
};

} // namespace mlgokit

#endif
