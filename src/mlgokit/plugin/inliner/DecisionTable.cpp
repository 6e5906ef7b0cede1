#include "inliner/DecisionTable.h"

#include "inliner/Features.h"
#include "inliner/SiteKeys.h"
#include "shared/ByteReader.h"
#include "shared/Files.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGODT2\n", 8);
constexpr uint32_t PlainFlag = 1, LinkFlag = 2, DeferFlag = 4, AnyLevelFlag = 8;

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("decision table " + Origin + ": " + What).str());
}

} // namespace

Expected<DecisionTable> DecisionTable::parse(StringRef Bytes, StringRef Origin) {
  const bool Ours = Bytes.consume_front(Magic);
  ByteReader In(Bytes);
  uint32_t Modules = 0, Length = 0;
  if (!Ours || !In.read(&Modules))
    return failure(Origin, "expected a file that `mlgokit tune` wrote, found another");
  DecisionTable Table;
  for (uint32_t I = 0; I < Modules; ++I) {
    uint32_t Names = 0, Keys = 0, Flags = 0;
    std::vector<uint64_t> Functions;
    Entry E;
    if (!In.read(&Names) || !In.read(&Keys) || !In.read(&Flags) || !In.read(Functions, Names) || !In.read(E.Keys, Keys))
      return failure(Origin, "it is cut short");
    E.Plain = Flags & PlainFlag;
    E.OnlyAtLink = Flags & LinkFlag;
    E.AnyLevel = Flags & AnyLevelFlag;
    Table.Defers |= bool(Flags & DeferFlag);
    for (uint64_t Name : Functions)
      Table.Owners.emplace_back(Name, I);
    if (!std::is_sorted(E.Keys.begin(), E.Keys.end()))
      return failure(Origin, "its keys are not in order; it is damaged");
    Table.Entries.push_back(std::move(E));
  }
  llvm::sort(Table.Owners);
  // What the search found, for `mlgokit check`.
  if (!In.read(&Length))
    return failure(Origin, "it is cut short");
  if (Length != In.left())
    return failure(Origin, "it is not as long as it says");
  return Table;
}

const DecisionTable::Entry *DecisionTable::find(const Module &M, bool AtLink) const {
  // Names that the linker knows say more than local ones, which many modules may have alike.
  for (const bool Local : {false, true}) {
    std::vector<uint32_t> Shared(Entries.size());
    for (const Function &F : M) {
      if (F.isDeclaration() || !(Local ? F.hasLocalLinkage() : F.hasExternalLinkage()))
        continue;
      const uint64_t Name = uint64_t(functionId(F));
      auto Owner = std::lower_bound(Owners.begin(), Owners.end(), std::pair(Name, uint32_t(0)));
      for (; Owner != Owners.end() && Owner->first == Name; ++Owner)
        if (AtLink || !Entries[Owner->second].OnlyAtLink)
          ++Shared[Owner->second];
    }
    const auto Most = std::max_element(Shared.begin(), Shared.end());
    if (Most == Shared.end() || *Most == 0)
      continue;
    if (!Local && std::count(Shared.begin(), Shared.end(), *Most) == 1)
      return &Entries[Most - Shared.begin()];
    const Entry *Best = nullptr;
    size_t MostKnown = 0;
    const std::vector<uint64_t> Keys = writtenKeys(M);
    for (size_t I = 0; I < Entries.size(); ++I) {
      if (Shared[I] != *Most)
        continue;
      const size_t Known = count_if(Keys, [&](uint64_t Key) { return decision(Entries[I], Key).has_value(); });
      if ((!Best && !Local) || Known > MostKnown)
        Best = &Entries[I];
      MostKnown = std::max(MostKnown, Known);
    }
    if (Best)
      return Best;
  }
  return nullptr;
}

std::optional<bool> DecisionTable::decision(const Entry &E, uint64_t Key) {
  auto Found = std::lower_bound(E.Keys.begin(), E.Keys.end(), Key);
  if (!Key || Found == E.Keys.end() || (*Found & ~uint64_t(1)) != Key)
    return std::nullopt;
  return *Found & 1;
}

Expected<std::optional<DecisionTable>> loadDecisions(const Settings &S) {
  Expected<Source> Found = readSource("decision table", S.Decisions, embeddedDecisions());
  if (!Found)
    return Found.takeError();
  if (Found->Bytes.empty())
    return std::nullopt;
  return DecisionTable::parse(Found->Bytes, Found->Origin);
}

} // namespace mlgokit
