#include "shared/Decided.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/Support/MD5.h"

#include <utility>

using namespace llvm;

namespace mlgokit {

namespace {

thread_local std::optional<MD5> Noted;

} // namespace

void beginDecisions() { Noted.emplace(); }

void noteDecision(bool Inline) {
  const uint8_t Byte = Inline;
  if (Noted)
    Noted->update(ArrayRef<uint8_t>(&Byte, 1));
}

std::optional<std::array<uint8_t, 16>> takeDecisions() {
  std::optional<MD5> All = std::exchange(Noted, std::nullopt);
  if (!All)
    return std::nullopt;
  MD5::MD5Result Result;
  All->final(Result);
  return Result;
}

} // namespace mlgokit
