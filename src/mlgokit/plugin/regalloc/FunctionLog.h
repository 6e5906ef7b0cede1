// The training log of a problem of the register allocator, as LLVM writes one in development mode: every function that
// comes to the allocator is a context, and the last observation of one has the score of its allocation.
#ifndef MLGOKIT_REGALLOC_FUNCTIONLOG_H
#define MLGOKIT_REGALLOC_FUNCTIONLOG_H

#include "trials/TrialCopy.h"

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Analysis/Utils/TrainingLogger.h"

#include <memory>

namespace mlgokit {

class FunctionLog {
public:
  explicit FunctionLog(std::unique_ptr<llvm::Logger> Given = nullptr) : Log(std::move(Given)) {}
  FunctionLog(FunctionLog &&) = default;
  FunctionLog &operator=(FunctionLog &&) = default;
  ~FunctionLog() { score(0); }

  explicit operator bool() const { return bool(Log); }
  llvm::Logger *operator->() const { return Log.get(); }

  /// Begins the context of a function, whether or not anything will be asked about it.
  void enter(llvm::StringRef Function) {
    if (!Log || isTrial() || Log->currentContext() == Function)
      return;
    score(0);
    Log->switchContext(Function);
  }

  /// Begins an observation of the function that was entered last; the one before has no part in its score.
  void observe() {
    score(0);
    Log->startObservation();
    IsUnscored = true;
  }

  /// Gives the last observation of \p Function, if there is one, what LLVM says of the allocation.
  void finish(llvm::StringRef Function, llvm::function_ref<float()> Score) {
    if (IsUnscored && !isTrial() && Log->currentContext() == Function)
      score(Score());
  }

private:
  void score(float Value) {
    if (IsUnscored && Log)
      Log->logReward<float>(Value);
    IsUnscored = false;
  }

  std::unique_ptr<llvm::Logger> Log;
  bool IsUnscored = false;
};

} // namespace mlgokit

#endif
