// The assembly of a module that is in no function: since 23 in fragments, each for a processor of its own.
#ifndef MLGOKIT_MAJORS_MODULEASSEMBLY_H
#define MLGOKIT_MAJORS_MODULEASSEMBLY_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"

namespace mlgokit {

/// Calls \p Visit with each text that decides what is assembled.
template <class Visitor> void forEachAssemblyText(const llvm::Module &M, Visitor Visit) {
#if LLVM_VERSION_MAJOR >= 23
  for (const llvm::Module::GlobalAsmFragment &Fragment : M.getModuleInlineAsm()) {
    Visit(llvm::StringRef(Fragment.Asm));
    for (const auto &[Name, Value] : Fragment.Props.getAsStrings()) {
      Visit(Name);
      Visit(Value);
    }
  }
#else
  Visit(llvm::StringRef(M.getModuleInlineAsm()));
#endif
}

} // namespace mlgokit

#endif
