// When the code of a function is there.
#ifndef MLGOKIT_SHARED_EMITTED_H
#define MLGOKIT_SHARED_EMITTED_H

#include <functional>

namespace llvm {
class LLVMContext;
class MachineFunction;
} // namespace llvm

namespace mlgokit {

/// Tells of each function of the context whose code is emitted from now on. What the compiler's own diagnostic handler
/// is asked or told stays its affair.
void whenEmitted(llvm::LLVMContext &Ctx, std::function<void(llvm::MachineFunction &)> Note);

} // namespace mlgokit

#endif
