#include "trials/OverrideTable.h"

#include "shared/ByteReader.h"
#include "shared/Files.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr std::vector<Override> Overrides::*Allocations[] = {&Overrides::Evictions, &Overrides::Priorities};
constexpr std::vector<Override> Overrides::*Passes[] = {&Overrides::Passes};

} // namespace

const TableKind AllocationKind{"allocation table", {"MLGORT1\n", 8}, Allocations};
const TableKind PassKind{"pass table", {"MLGOPT1\n", 8}, Passes};

Expected<OverrideTable> OverrideTable::parse(const TableKind &Kind, StringRef Bytes, StringRef Origin) {
  const auto Failure = [&](const Twine &Found) {
    return createStringError(inconvertibleErrorCode(), (Twine(Kind.What) + " " + Origin + ": " + Found).str());
  };
  if (!Bytes.starts_with(Kind.Magic))
    return Failure("expected a file that `mlgokit tune` wrote, found another");
  ByteReader In(Bytes.drop_front(Kind.Magic.size()));
  OverrideTable Table;
  uint32_t Count = 0;
  bool Whole = In.read(&Count);
  SmallVector<uint32_t, 4> Counts(Kind.Lists.size());
  // A damaged count may be anything.
  const size_t Room = std::min<size_t>(Count, Bytes.size() / (sizeof(uint64_t) + Counts.size() * sizeof(uint32_t)));
  Table.Keys.reserve(Room);
  Table.Entries.reserve(Room);
  for (uint32_t I = 0; Whole && I < Count; ++I) {
    uint64_t Key = 0;
    Overrides Entry;
    Whole = In.read(&Key) && In.read(Counts.data(), Counts.size());
    for (size_t L = 0; Whole && L < Counts.size(); ++L)
      Whole = In.read(Entry.*Kind.Lists[L], Counts[L]);
    if (Whole && !Table.Keys.empty() && Key <= Table.Keys.back())
      return Failure("its keys are not in order; it is damaged");
    Table.Keys.push_back(Key);
    Table.Entries.push_back(std::move(Entry));
  }
  uint32_t Length = 0; // of what the search found, for people
  if (!Whole || !In.read(&Length))
    return Failure("it is cut short");
  if (Length != In.left())
    return Failure("it is not as long as it says");
  return Table;
}

const Overrides *OverrideTable::find(uint64_t Key) const {
  auto Found = std::lower_bound(Keys.begin(), Keys.end(), Key);
  return Found == Keys.end() || *Found != Key ? nullptr : &Entries[size_t(Found - Keys.begin())];
}

Expected<std::optional<OverrideTable>> loadTable(const TableKind &Kind, StringRef Path, StringRef Embedded) {
  Expected<Source> Found = readSource(Kind.What, Path, Embedded);
  if (!Found)
    return Found.takeError();
  if (Found->Bytes.empty())
    return std::nullopt;
  return OverrideTable::parse(Kind, Found->Bytes, Found->Origin);
}

} // namespace mlgokit
