#include "reuse/Digests.h"

#include "identity/Identity.h"

#include "llvm/Support/MemoryBuffer.h"

using namespace llvm;

namespace mlgokit {

Expected<StringSet<>> readDigests(StringRef What, const char *Path) {
  StringSet<> Known;
  if (!Path || !*Path)
    return std::move(Known);
  auto Read = MemoryBuffer::getFile(Path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!Read)
    return createStringError(Read.getError(), (What + " " + Path + ": " + Read.getError().message()).str());
  StringRef Bytes = (*Read)->getBuffer();
  if (Bytes.size() % sizeof(Digest))
    return createStringError(inconvertibleErrorCode(), (What + " " + Path + ": it is cut short").str());
  for (; !Bytes.empty(); Bytes = Bytes.drop_front(sizeof(Digest)))
    Known.insert(Bytes.take_front(sizeof(Digest)));
  return std::move(Known);
}

} // namespace mlgokit
