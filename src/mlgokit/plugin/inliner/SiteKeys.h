// Names for call sites that hold across rebuilds: the keys of decision tables.
//
// A key is made of the caller's body, the way by which the call got there (the body in which it was written and its
// place there, and the same for every call through which it was inlined), the callee's body and a count. Bodies are
// hashed as the inliner first sees them, without paths, strings, debug information and names of local values. So a key
// holds in another folder, with or without debug information, and a body that changed has other keys. docs/formats.md
// says what is guaranteed.
#ifndef MLGOKIT_INLINER_SITEKEYS_H
#define MLGOKIT_INLINER_SITEKEYS_H

#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/Module.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mlgokit {

class SiteKeys {
public:
  /// Hashes every body of \p M and marks every call with the place where it was written; inlining copies the marks.
  explicit SiteKeys(llvm::Module &M);
  ~SiteKeys();

  /// The key of the decision that is asked for now; bit 0 is always 0. The same call asked again has another key.
  /// A call that has lost its mark, as one that becomes an invoke when it is inlined, gets one from all that was
  /// inlined into its caller before and its position among the like.
  uint64_t next(llvm::CallBase &Call);

  /// Until \ref leave, marks in the callee lead through \p Call, which is about to be inlined.
  void enter(const llvm::CallBase &Call);
  void leave(bool Inlined, bool CalleeIsThere);

private:
  struct Memory;

  uint64_t bodyOf(const llvm::Function &F);
  uint64_t historyOf(const llvm::Function &F);
  void mark(llvm::CallBase &Call, uint64_t Path);
  std::optional<uint64_t> pathOf(const llvm::CallBase &Call) const;

  unsigned Kind;
  std::unique_ptr<Memory> Kept;
  std::unordered_map<uint64_t, uint64_t> Asked;
  std::vector<std::pair<llvm::CallBase *, llvm::MDNode *>> Entered;
  const llvm::Function *Grows = nullptr; // between enter and leave the caller, and its history after it
  uint64_t Grown = 0;
};

/// The keys of all calls of \p M as they were written, each asked for the first time, in no order.
std::vector<uint64_t> writtenKeys(const llvm::Module &M);

} // namespace mlgokit

#endif
