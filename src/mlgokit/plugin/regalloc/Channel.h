// A way to make LLVM's ML advisors without a model inside the compiler.
#ifndef MLGOKIT_REGALLOC_CHANNEL_H
#define MLGOKIT_REGALLOC_CHANNEL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/Error.h"

namespace mlgokit {

/// Runs \p Make while LLVM's option \p OptionName names an interactive channel whose two ends lead nowhere.
///
/// LLVM makes its ML advisors only for a model that was built in, or for such a channel. Its ends are opened once, in
/// the constructor of InteractiveModelRunner. Nobody ever speaks over this channel: the caller takes the runner away.
llvm::Error withSilentChannel(llvm::StringRef OptionName, llvm::function_ref<void()> Make);

} // namespace mlgokit

#endif
