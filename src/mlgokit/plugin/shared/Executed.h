// How many instructions of a function are executed, by LLVM's own estimate of frequencies.
#ifndef MLGOKIT_SHARED_EXECUTED_H
#define MLGOKIT_SHARED_EXECUTED_H

namespace llvm {
class MachineFunction;
}

namespace mlgokit {

/// Instructions of one call of the function, from the branch probabilities of its blocks as they are now.
double executedInstructions(llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
