// How long the code of a function is while the compiler is still at work.
#ifndef MLGOKIT_TRIALS_CODESIZE_H
#define MLGOKIT_TRIALS_CODESIZE_H

#include <cstddef>
#include <optional>

namespace llvm {
class MachineFunction;
}

namespace mlgokit {

/// The bytes that were emitted for a function, the last one in its section, with branches as long as on x86 they will
/// be; nothing if its code is not there.
std::optional<size_t> emittedBytes(const llvm::MachineFunction &MF);

/// The bytes of a function's instructions, as the target tells them before they are emitted; nothing if it does not.
std::optional<size_t> machineBytes(const llvm::MachineFunction &MF);

/// Of these, what a linker for RISC-V takes out: one of the two instructions of each call.
/// `relaxed_bytes` in compiler/objects/elf_object.py is the twin.
size_t relaxedBytes(const llvm::MachineFunction &MF);

/// The bytes of a function's jump tables.
size_t jumpTableBytes(const llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
