// A compiler that stays: it comes as far as the inliner once, and a child of it goes on from there for each request.
#ifndef MLGOKIT_REUSE_RESIDENT_H
#define MLGOKIT_REUSE_RESIDENT_H

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

namespace mlgokit {

/// Unless MLGOKIT_RESIDENT is set, returns at once. Else answers requests on descriptor 0 (docs/formats.md, "Resident
/// compilers") until it is closed, and ends the process; returns in each child, which has the request's environment
/// and the request's object as standard output. With MLGOKIT_RESIDENT=worker this is a thread of rustc: it answers
/// where \p AtLink, and a child goes on as that thread alone, which writes the object where rustc wants it.
void serveRequests(llvm::Module &M, bool AtLink);

/// Whether this process is the copy of one thread of rustc.
bool isWorkersCopy();

/// There, lets an error end the process with a status that says so; rustc would send it to a thread that is no more.
void endOnErrors(llvm::LLVMContext &Context);

} // namespace mlgokit

#endif
