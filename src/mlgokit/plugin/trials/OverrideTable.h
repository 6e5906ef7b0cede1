// Tables of functions about which something is decided otherwise than LLVM would: docs/formats.md, "Allocation table"
// and "Pass table".
#ifndef MLGOKIT_TRIALS_OVERRIDETABLE_H
#define MLGOKIT_TRIALS_OVERRIDETABLE_H

#include "trials/Overrides.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace mlgokit {

/// What tables of one kind hold.
struct TableKind {
  const char *What; // for messages
  llvm::StringRef Magic;
  llvm::ArrayRef<std::vector<Override> Overrides::*> Lists;
};
extern const TableKind AllocationKind, PassKind;

/// The functions of a project, by their keys.
class OverrideTable {
public:
  static llvm::Expected<OverrideTable> parse(const TableKind &Kind, llvm::StringRef Bytes, llvm::StringRef Origin);
  const Overrides *find(uint64_t Key) const;

private:
  std::vector<uint64_t> Keys;
  std::vector<Overrides> Entries;
};

/// Reads the table, if there is one: the file at \p Path, else what is \p Embedded in the plugin.
llvm::Expected<std::optional<OverrideTable>> loadTable(const TableKind &Kind, llvm::StringRef Path,
                                                       llvm::StringRef Embedded);

} // namespace mlgokit

#endif
