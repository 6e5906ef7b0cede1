// How passes come into the default pipelines behind the inliner; LLVM 20 says there at which step of an LTO they run.
#ifndef MLGOKIT_MAJORS_PIPELINECALLBACKS_H
#define MLGOKIT_MAJORS_PIPELINECALLBACKS_H

#include "llvm/Config/llvm-config.h"
#include "llvm/Passes/PassBuilder.h"

namespace mlgokit {

#if LLVM_VERSION_MAJOR >= 20
template <class Pass> void addPass(llvm::ModulePassManager &Passes, llvm::OptimizationLevel, llvm::ThinOrFullLTOPhase) {
  Passes.addPass(Pass());
}
#else
template <class Pass> void addPass(llvm::ModulePassManager &Passes, llvm::OptimizationLevel) { Passes.addPass(Pass()); }
#endif

/// Runs \p Pass before the optimizations that come after the inliner.
template <class Pass> void addBeforeOptimizer(llvm::PassBuilder &Builder) {
  Builder.registerOptimizerEarlyEPCallback(addPass<Pass>);
}

/// Runs \p Pass after all optimizations.
template <class Pass> void addAfterOptimizer(llvm::PassBuilder &Builder) {
  Builder.registerOptimizerLastEPCallback(addPass<Pass>);
}

} // namespace mlgokit

#endif
