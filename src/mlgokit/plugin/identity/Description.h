// What a module is: an identity that names, paths and debug information do not change, and counts for each function.
#ifndef MLGOKIT_IDENTITY_DESCRIPTION_H
#define MLGOKIT_IDENTITY_DESCRIPTION_H

namespace llvm {
class PassBuilder;
}

namespace mlgokit {

/// With -mlgokit-describe=<file> or MLGOKIT_DESCRIBE=<file>, the process writes the description of its module to the
/// file and ends: before the first pass, or, with MLGOKIT_DESCRIBE_AT=end, after the last one before code generation.
void registerDescription(llvm::PassBuilder &Builder);

} // namespace mlgokit

#endif
