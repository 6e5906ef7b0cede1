// Writing to a file descriptor to the end.
#ifndef MLGOKIT_SHARED_DESCRIPTOR_H
#define MLGOKIT_SHARED_DESCRIPTOR_H

#include "llvm/ADT/ArrayRef.h"

#include <cerrno>

#include <unistd.h>

namespace mlgokit {

/// Writes all of \p Bytes, also after signals; false if that fails.
inline bool writeAll(int Descriptor, llvm::ArrayRef<char> Bytes) {
  while (!Bytes.empty()) {
    const ssize_t Written = ::write(Descriptor, Bytes.data(), Bytes.size());
    if (Written < 0 && errno == EINTR)
      continue;
    if (Written <= 0)
      return false;
    Bytes = Bytes.drop_front(size_t(Written));
  }
  return true;
}

} // namespace mlgokit

#endif
