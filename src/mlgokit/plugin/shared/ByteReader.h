// Reads numbers and records from the bytes of a file, in the byte order of x86-64 and AArch64, never beyond the end.
#ifndef MLGOKIT_SHARED_BYTEREADER_H
#define MLGOKIT_SHARED_BYTEREADER_H

#include "llvm/ADT/StringRef.h"

#include <cstring>
#include <vector>

namespace mlgokit {

class ByteReader {
public:
  explicit ByteReader(llvm::StringRef Bytes) : Bytes(Bytes) {}
  /// Copies the next bytes to \p Values; false, and nothing is read, if there are not so many.
  template <class T> bool read(T *Values, size_t Count = 1) {
    if (Count > left() / sizeof(T))
      return false;
    // Of nothing there is no place to copy it to.
    if (Count)
      std::memcpy(static_cast<void *>(Values), Bytes.data() + At, Count * sizeof(T));
    At += Count * sizeof(T);
    return true;
  }
  /// The same; memory is taken only for what is there.
  template <class T> bool read(std::vector<T> &Values, size_t Count) {
    if (Count > left() / sizeof(T))
      return false;
    Values.resize(Count);
    return read(Values.data(), Count);
  }
  size_t left() const { return Bytes.size() - At; }

private:
  llvm::StringRef Bytes;
  size_t At = 0;
};

} // namespace mlgokit

#endif
