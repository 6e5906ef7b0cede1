// Writes fields as the bytes that a digest is made of: no two sequences of fields of the same kinds give the same
// bytes.
#ifndef MLGOKIT_SHARED_BYTEWRITER_H
#define MLGOKIT_SHARED_BYTEWRITER_H

#include "llvm/ADT/APInt.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <cstdint>

namespace mlgokit {

class ByteWriter {
public:
  /// Seven bits to a byte, the lowest first.
  void add(uint64_t Value) {
    do {
      Bytes.push_back(uint8_t((Value & 127) | (Value > 127 ? 128 : 0)));
      Value >>= 7;
    } while (Value);
  }
  void add(llvm::StringRef Text) {
    add(uint64_t(Text.size()));
    Bytes.append(Text.bytes_begin(), Text.bytes_end());
  }
  void add(const llvm::APInt &Value) {
    add(uint64_t(Value.getBitWidth()));
    for (unsigned I = 0; I < Value.getNumWords(); ++I)
      add(Value.getRawData()[I]);
  }
  /// As they are, so only what always has the same length.
  void add(llvm::ArrayRef<uint8_t> Digest) { Bytes.append(Digest.begin(), Digest.end()); }

  llvm::ArrayRef<uint8_t> bytes() const { return Bytes; }

private:
  llvm::SmallVector<uint8_t, 0> Bytes;
};

} // namespace mlgokit

#endif
