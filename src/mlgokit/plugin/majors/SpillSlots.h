// LLVM's analysis of spill slots, the last before the register allocator comes to a function.
#ifndef MLGOKIT_MAJORS_SPILLSLOTS_H
#define MLGOKIT_MAJORS_SPILLSLOTS_H

#include "llvm/CodeGen/LiveStacks.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassRegistry.h"

namespace mlgokit {

#if LLVM_VERSION_MAJOR >= 21
using SpillSlots = llvm::LiveStacksWrapperLegacy;
inline void initializeSpillSlots(llvm::PassRegistry &R) { llvm::initializeLiveStacksWrapperLegacyPass(R); }
#else
using SpillSlots = llvm::LiveStacks;
inline void initializeSpillSlots(llvm::PassRegistry &R) { llvm::initializeLiveStacksPass(R); }
#endif

} // namespace mlgokit

#endif
