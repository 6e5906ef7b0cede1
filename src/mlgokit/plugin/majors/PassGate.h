// How LLVM asks whether a pass runs: since 21 of a gate that it regards as constant.
#ifndef MLGOKIT_MAJORS_PASSGATE_H
#define MLGOKIT_MAJORS_PASSGATE_H

#include "llvm/Config/llvm-config.h"
#include "llvm/IR/OptBisect.h"

namespace mlgokit {

class PassGate : public llvm::OptPassGate {
public:
#if LLVM_VERSION_MAJOR >= 21
  bool shouldRunPass(llvm::StringRef Pass, llvm::StringRef Unit) const final { return runs(Pass, Unit); }
#else
  bool shouldRunPass(llvm::StringRef Pass, llvm::StringRef Unit) final { return runs(Pass, Unit); }
#endif
  bool isEnabled() const final { return true; }

private:
  virtual bool runs(llvm::StringRef Pass, llvm::StringRef Unit) const = 0;
};

} // namespace mlgokit

#endif
