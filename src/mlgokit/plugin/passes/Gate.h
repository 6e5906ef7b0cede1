// Which optional passes of the code generator run, function by function.
#ifndef MLGOKIT_PASSES_GATE_H
#define MLGOKIT_PASSES_GATE_H

namespace llvm {
class Module;
}

namespace mlgokit {

/// What else waits for the beginning of code generation.
struct CodeGenerationListener {
  bool (*IsWaiting)();
  void (*Begin)(llvm::Module &M, bool HasGate);
};

/// Lets the plugin put its gate before LLVM's own when code is generated for a module; it is not there without a pass
/// table, a policy of passes, its log or trials.
void registerPassGate(const CodeGenerationListener &Other);

} // namespace mlgokit

#endif
