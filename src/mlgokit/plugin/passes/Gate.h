// Which optional passes of the code generator run, function by function.
#ifndef MLGOKIT_PASSES_GATE_H
#define MLGOKIT_PASSES_GATE_H

namespace mlgokit {

/// Lets the plugin put its gate before LLVM's own when code is generated for a module; it is not there without a pass
/// table and without trials.
void registerPassGate();

} // namespace mlgokit

#endif
