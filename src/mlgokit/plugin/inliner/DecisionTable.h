// Tables of decisions by the keys of their call sites, as `mlgokit tune` finds them: docs/formats.md, "Decision table".
#ifndef MLGOKIT_INLINER_DECISIONTABLE_H
#define MLGOKIT_INLINER_DECISIONTABLE_H

#include "shared/Settings.h"

#include "llvm/IR/Module.h"
#include "llvm/Pass.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace mlgokit {

/// Whether \p Phase is that of a compile step before a link-time optimization.
inline bool isBeforeLink(llvm::ThinOrFullLTOPhase Phase) {
  return Phase == llvm::ThinOrFullLTOPhase::FullLTOPreLink || Phase == llvm::ThinOrFullLTOPhase::ThinLTOPreLink;
}

/// Decisions for the modules of a project; docs/formats.md has the bytes.
class DecisionTable {
public:
  struct Entry {
    bool Plain = false;         // keep LLVM's own advisor; the keys only tell the module from others
    bool OnlyAtLink = false;    // for the merged module of a full link-time optimization
    bool AnyLevel = false;      // for a module that is not compiled for size
    std::vector<uint64_t> Keys; // ascending, bit 0 is the decision
  };

  static llvm::Expected<DecisionTable> parse(llvm::StringRef Bytes, llvm::StringRef Origin);

  /// The entry of the module with which \p M shares most of its externally visible functions, or if it has none, its
  /// local ones; among several the one that knows most of its calls. Those for the link are not found before it.
  const Entry *find(const llvm::Module &M, bool AtLink) const;

  static std::optional<bool> decision(const Entry &E, uint64_t Key);

  /// Whether the compile steps before a link-time optimization leave all to it: they inline nothing, and run all
  /// passes.
  bool defers(llvm::ThinOrFullLTOPhase Phase) const { return Defers && isBeforeLink(Phase); }

private:
  bool Defers = false;
  std::vector<Entry> Entries;
  /// Hashes of functions' names, ascending, each with an entry that has it. Whoever chooses the hashes of a table could
  /// make one of buckets slow.
  std::vector<std::pair<uint64_t, uint32_t>> Owners;
};

/// Reads the table, if there is one: the file that the settings name, else the one in the plugin.
llvm::Expected<std::optional<DecisionTable>> loadDecisions(const Settings &S);

} // namespace mlgokit

#endif
