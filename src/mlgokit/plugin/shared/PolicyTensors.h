// Tensors of a policy file, which is a safetensors file; every length is checked.
#ifndef MLGOKIT_SHARED_POLICYTENSORS_H
#define MLGOKIT_SHARED_POLICYTENSORS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"

#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

namespace mlgokit {

/// The error that a policy file from \p Origin is wrong.
inline llvm::Error failure(llvm::StringRef Origin, const llvm::Twine &What) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), llvm::Twine("policy " + Origin + ": " + What).str());
}

/// One tensor of a safetensors file: always little-endian 32-bit floats here.
struct Tensor {
  std::vector<size_t> Shape;
  std::vector<float> Values;
};

/// The tensors of a file. No two share numbers, so that a file gives no more than it has.
struct TensorFile {
  const llvm::json::Object &Header;
  llvm::StringRef Data, Origin;
  size_t Unread;      // numbers
  std::string Prefix; // of the names of a part's tensors
  llvm::Expected<Tensor> read(llvm::StringRef Name);
};

inline llvm::Expected<Tensor> TensorFile::read(llvm::StringRef Name) {
  const llvm::json::Object *Entry = Header.getObject(Prefix + Name.str());
  if (!Entry)
    return failure(Origin, "expected tensor '" + Name + "', found none; export the policy again");
  const llvm::json::Array *Shape = Entry->getArray("shape");
  const llvm::json::Array *Offsets = Entry->getArray("data_offsets");
  if (Entry->getString("dtype") != "F32" || !Shape || !Offsets || Offsets->size() != 2)
    return failure(Origin, "tensor '" + Name + "': expected dtype F32 with shape and data_offsets");
  constexpr int64_t MostElements = int64_t(1) << 26;
  Tensor Result;
  uint64_t Elements = 1;
  for (const llvm::json::Value &Dimension : *Shape) {
    std::optional<int64_t> Size = Dimension.getAsInteger();
    if (!Size || *Size <= 0 || *Size > MostElements || Elements * uint64_t(*Size) > MostElements)
      return failure(Origin, "tensor '" + Name + "': impossible shape");
    Result.Shape.push_back(size_t(*Size));
    Elements *= uint64_t(*Size);
  }
  std::optional<int64_t> Begin = (*Offsets)[0].getAsInteger(), End = (*Offsets)[1].getAsInteger();
  if (!Begin || !End || *Begin < 0 || *End < *Begin || size_t(*End) > Data.size() ||
      size_t(*End - *Begin) != Elements * sizeof(float))
    return failure(Origin, "tensor '" + Name + "': data offsets do not fit its shape or the file");
  if (Elements > Unread)
    return failure(Origin, "tensor '" + Name + "': it shares its numbers with another");
  Unread -= Elements;
  Result.Values.resize(Elements);
  for (size_t I = 0; I < Elements; ++I) {
    const uint32_t Bits = llvm::support::endian::read32le(Data.data() + *Begin + I * sizeof(float));
    std::memcpy(&Result.Values[I], &Bits, sizeof(float));
    if (!std::isfinite(Result.Values[I]))
      return failure(Origin, "tensor '" + Name + "': expected finite numbers only");
  }
  return Result;
}

} // namespace mlgokit

#endif
