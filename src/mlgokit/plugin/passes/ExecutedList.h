// What functions execute once their code is there.
#ifndef MLGOKIT_PASSES_EXECUTEDLIST_H
#define MLGOKIT_PASSES_EXECUTEDLIST_H

namespace llvm {
class LLVMContext;
}

namespace mlgokit {

/// Before code is generated, if a list of passes is wanted: adds what each function executes to the list that the gate
/// of the optimizer began (docs/formats.md, "List of passes"); nothing if it began none.
void enterExecutedList(llvm::LLVMContext &Ctx);

} // namespace mlgokit

#endif
