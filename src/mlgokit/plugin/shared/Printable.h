// Text of a file in a message, without what a terminal would obey.
#ifndef MLGOKIT_SHARED_PRINTABLE_H
#define MLGOKIT_SHARED_PRINTABLE_H

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <string>

namespace mlgokit {

/// The first characters of \p Text; what is not printable ASCII as \\XX.
inline std::string printable(llvm::StringRef Text) {
  constexpr size_t Most = 100;
  std::string Shown;
  llvm::raw_string_ostream Out(Shown);
  llvm::printEscapedString(Text.take_front(Most), Out);
  return Shown;
}

} // namespace mlgokit

#endif
