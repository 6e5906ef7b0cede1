// Fewer rows of unwind tables on x86, where each push and pop takes one while the stack pointer is what they go by.
#ifndef MLGOKIT_PASSES_UNWINDROWS_H
#define MLGOKIT_PASSES_UNWINDROWS_H

#include "llvm/ADT/StringRef.h"

namespace llvm {
class Function;
class MachineFunction;
} // namespace llvm

namespace mlgokit {

/// Whether \p F can have a frame pointer that it does not have by its attributes, and unwind tables to gain by it.
bool mayKeepFramePointer(const llvm::Function &F);

/// With a frame pointer, pushes and pops after it take no rows, and what is on the stack is a byte nearer.
void keepFramePointer(llvm::Function &F);

/// Whether constants may be pushed and popped in \p F, as LLVM does for minsize, and unwind tables have rows of that.
bool mayPushConstants(const llvm::Function &F);

/// Has constants moved where a push and a pop would take rows.
void forbidPushedConstants(llvm::Function &F);

/// Between the passes that place the frame and those that expand pseudo instructions the code generator knows whether
/// they take rows. The first optional one that asks then.
inline constexpr llvm::StringLiteral FirstAfterFrame = "branch-folder";

/// Moves the constants of a function that may not push them.
void movePushedConstants(llvm::MachineFunction &MF);

} // namespace mlgokit

#endif
