// Names for call sites that hold across rebuilds, and tables of decisions by such names (`mlgokit tune`).
//
// A key is made of the caller's body, the body in which the call was written, its place there, the callee's body and a
// count. Bodies are hashed as the inliner first sees them, without paths, strings, debug information and names of local
// values. So a key holds in another folder, with or without debug information, and a body that changed has other keys.
#ifndef MLGOKIT_SITE_KEYS_H
#define MLGOKIT_SITE_KEYS_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace mlgokit {

class SiteKeys {
public:
  /// Hashes every body of \p M and marks every call with the place where it was written; inlining copies the marks.
  explicit SiteKeys(llvm::Module &M);

  /// The key of the decision that is asked for now; bit 0 is always 0. The same call asked again has another key.
  uint64_t next(const llvm::CallBase &Call);

  /// The kind of metadata that the marks are.
  static unsigned mark(llvm::LLVMContext &Context);

private:
  unsigned Kind;
  llvm::DenseMap<const llvm::Function *, uint64_t> Bodies;
  std::unordered_map<uint64_t, uint64_t> Asked;
};

/// Decisions for the modules of a project; docs/formats.md has the bytes.
class DecisionTable {
public:
  struct Entry {
    bool Plain = false;          // keep LLVM's own advisor
    std::vector<uint64_t> Keys;  // ascending, bit 0 is the decision
  };

  static llvm::Expected<DecisionTable> parse(llvm::StringRef Bytes, llvm::StringRef Origin);

  /// The entry of the module with which \p M shares most of its externally visible functions, if any.
  const Entry *find(const llvm::Module &M) const;

  static std::optional<bool> decision(const Entry &E, uint64_t Key);

private:
  std::vector<Entry> Entries;
  std::unordered_map<uint64_t, std::vector<uint32_t>> Owners; // hash of a function's name to entries
};

} // namespace mlgokit

#endif
