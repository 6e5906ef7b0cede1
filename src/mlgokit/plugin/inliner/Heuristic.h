// LLVM's own inlining decision, asked for one call.
#ifndef MLGOKIT_INLINER_HEURISTIC_H
#define MLGOKIT_INLINER_HEURISTIC_H

#include "llvm/Analysis/InlineAdvisor.h"

namespace mlgokit {

/// What the default advisor would decide; the same question as LLVM asks in InlineAdvisor.cpp.
bool heuristicInlines(llvm::CallBase &Call, llvm::FunctionAnalysisManager &FAM, const llvm::InlineParams &Params);

} // namespace mlgokit

#endif
