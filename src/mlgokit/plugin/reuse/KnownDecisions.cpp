#include "reuse/KnownDecisions.h"

#include "identity/Identity.h"
#include "majors/PipelineCallbacks.h"
#include "reuse/Digests.h"
#include "shared/Decided.h"

#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>
#include <optional>

#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

/// Whether all that follows is known.
Expected<bool> isKnown(const Digest &D, const char *Path) {
  Expected<StringSet<>> Known = readDigests("known decisions", std::getenv("MLGOKIT_KNOWN_DECISIONS"));
  if (!Known)
    return Known.takeError();
  const bool Found = Known->contains(StringRef(reinterpret_cast<const char *>(D.data()), D.size()));
  std::error_code Code;
  raw_fd_ostream Out(Path, Code);
  if (!Code) {
    Out << (Found ? 'e' : 'g') << ' ' << toHex(D) << '\n';
    Out.close();
    Code = Out.error();
    Out.clear_error();
  }
  if (Code)
    return createStringError(Code, std::string("decisions ") + Path + ": " + Code.message());
  return Found;
}

struct EndWhereKnown : PassInfoMixin<EndWhereKnown> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    const std::optional<Digest> Decided = takeDecisions();
    const char *Path = std::getenv("MLGOKIT_DECIDED");
    if (!Decided || !Path || !*Path)
      return PreservedAnalyses::all();
    Expected<bool> Known = isKnown(*Decided, Path);
    if (!Known)
      M.getContext().emitError("mlgokit: " + toString(Known.takeError()));
    else if (*Known)
      // The advisor went with the inliner, so its log is whole; nobody reads the object.
      _exit(0);
    return PreservedAnalyses::all();
  }
  static bool isRequired() { return true; }
};

} // namespace

void registerKnownDecisions(PassBuilder &Builder) {
  // A resident compiler learns only with a request whether it is wanted.
  if (!std::getenv("MLGOKIT_DECIDED") && !std::getenv("MLGOKIT_RESIDENT"))
    return;
  addBeforeOptimizer<EndWhereKnown>(Builder);
}

} // namespace mlgokit
