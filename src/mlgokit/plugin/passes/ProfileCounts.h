// How often functions are entered and called, by the profile that a module is compiled with.
#ifndef MLGOKIT_PASSES_PROFILECOUNTS_H
#define MLGOKIT_PASSES_PROFILECOUNTS_H

namespace llvm {
class Module;
class raw_ostream;
} // namespace llvm

namespace mlgokit {

/// Lists the entries of each function that the profile counted, and its direct calls (docs/formats.md, "List of
/// passes"); nothing without a profile.
void listProfileCounts(llvm::Module &M, llvm::raw_ostream &List);

} // namespace mlgokit

#endif
