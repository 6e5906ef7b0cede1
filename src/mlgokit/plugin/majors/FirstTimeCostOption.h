// How the register allocator's option is set that says what the first use of a callee-saved register costs.
#ifndef MLGOKIT_MAJORS_FIRSTTIMECOSTOPTION_H
#define MLGOKIT_MAJORS_FIRSTTIMECOSTOPTION_H

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"

#include <optional>
#include <string>

namespace mlgokit {

using CostOption = llvm::cl::opt<unsigned>;

/// Has the allocator count \p Cost, or else \p Llvms, the option's own value. LLVM 23 reads the option only if it was
/// given.
inline void setFirstTimeCost(CostOption &Option, std::optional<unsigned> Cost, unsigned Llvms) {
#if LLVM_VERSION_MAJOR >= 23
  static_cast<llvm::cl::Option &>(Option).reset();
  Option.setValue(Llvms);
  if (Cost)
    static_cast<llvm::cl::Option &>(Option).addOccurrence(0, Option.ArgStr, std::to_string(*Cost));
#else
  Option.setValue(Cost.value_or(Llvms));
#endif
}

} // namespace mlgokit

#endif
