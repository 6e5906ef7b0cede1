// Tables of functions whose registers are allocated otherwise than LLVM would: docs/formats.md, "Allocation table".
#ifndef MLGOKIT_REGALLOC_ALLOCATIONTABLE_H
#define MLGOKIT_REGALLOC_ALLOCATIONTABLE_H

#include "shared/Settings.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <vector>

namespace mlgokit {

/// An answer other than LLVM's to the \p Nth question, from 0, about one live range.
struct Override {
  uint32_t Range;
  uint16_t Nth;
  uint16_t Choice; // of an eviction: the column; of a priority: docs/formats.md
};
static_assert(sizeof(Override) == 8, "as in files");

struct Overrides {
  std::vector<Override> Evictions, Priorities;
};

/// The functions of a project that are allocated otherwise.
class AllocationTable {
public:
  static llvm::Expected<AllocationTable> parse(llvm::StringRef Bytes, llvm::StringRef Origin);
  const Overrides *find(uint64_t Key) const;

private:
  std::vector<uint64_t> Keys;
  std::vector<Overrides> Entries;
};

/// Reads the table, if there is one: the file that the settings name, else the one in the plugin.
llvm::Expected<std::optional<AllocationTable>> loadAllocations(const Settings &S);

} // namespace mlgokit

#endif
