// What a compile unit of the debug information says of its language.
#ifndef MLGOKIT_MAJORS_SOURCELANGUAGE_H
#define MLGOKIT_MAJORS_SOURCELANGUAGE_H

#include "llvm/BinaryFormat/Dwarf.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DebugInfoMetadata.h"

namespace mlgokit {

/// DWARF's name of it.
inline llvm::StringRef sourceLanguage(const llvm::DICompileUnit &Unit) {
#if LLVM_VERSION_MAJOR >= 22
  return llvm::dwarf::LanguageString(Unit.getSourceLanguage().getUnversionedName());
#else
  return llvm::dwarf::LanguageString(Unit.getSourceLanguage());
#endif
}

} // namespace mlgokit

#endif
