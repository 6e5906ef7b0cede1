#include "regalloc/AllocationTable.h"

#include "shared/ByteReader.h"
#include "shared/Files.h"

#include "llvm/ADT/Twine.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGORT1\n", 8);

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("allocation table " + Origin + ": " + What).str());
}

} // namespace

Expected<AllocationTable> AllocationTable::parse(StringRef Bytes, StringRef Origin) {
  if (!Bytes.starts_with(Magic))
    return failure(Origin, "expected a file that `mlgokit tune` wrote, found another");
  ByteReader In(Bytes.drop_front(Magic.size()));
  AllocationTable Table;
  uint32_t Count = 0;
  bool Whole = In.read(&Count);
  for (uint32_t I = 0; Whole && I < Count; ++I) {
    uint64_t Key = 0;
    uint32_t Counts[2] = {};
    Overrides Entry;
    Whole = In.read(&Key) && In.read(Counts, 2) && In.read(Entry.Evictions, Counts[0]) &&
            In.read(Entry.Priorities, Counts[1]);
    if (Whole && !Table.Keys.empty() && Key <= Table.Keys.back())
      return failure(Origin, "its keys are not in order; it is damaged");
    Table.Keys.push_back(Key);
    Table.Entries.push_back(std::move(Entry));
  }
  uint32_t Length = 0; // of what the search found, for people
  if (!Whole || !In.read(&Length))
    return failure(Origin, "it is cut short");
  if (Length != In.left())
    return failure(Origin, "it is not as long as it says");
  return Table;
}

const Overrides *AllocationTable::find(uint64_t Key) const {
  auto Found = std::lower_bound(Keys.begin(), Keys.end(), Key);
  return Found == Keys.end() || *Found != Key ? nullptr : &Entries[size_t(Found - Keys.begin())];
}

Expected<std::optional<AllocationTable>> loadAllocations(const Settings &S) {
  Expected<Source> Found = readSource("allocation table", S.Allocations, embeddedAllocations());
  if (!Found)
    return Found.takeError();
  if (Found->Bytes.empty())
    return std::nullopt;
  Expected<AllocationTable> Parsed = AllocationTable::parse(Found->Bytes, Found->Origin);
  if (!Parsed)
    return Parsed.takeError();
  return std::move(*Parsed);
}

} // namespace mlgokit
