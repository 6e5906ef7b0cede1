// What functions execute once their code is there.
#ifndef MLGOKIT_PASSES_EXECUTEDLIST_H
#define MLGOKIT_PASSES_EXECUTEDLIST_H

namespace llvm {
class LLVMContext;
}

namespace mlgokit {

/// Whether it is wanted: MLGOKIT_CHANGED is set.
bool listsExecuted();

/// Before code is generated, if it is wanted: adds what each function executes to the list that the gate of the
/// optimizer began (docs/formats.md, "List of passes"); nothing if it began none.
void enterExecutedList(llvm::LLVMContext &Ctx);

} // namespace mlgokit

#endif
