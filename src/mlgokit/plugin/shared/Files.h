// What an advisor reads and writes: its policy, its training log.
#ifndef MLGOKIT_SHARED_FILES_H
#define MLGOKIT_SHARED_FILES_H

#include "shared/Policy.h"
#include "shared/Settings.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/Analysis/Utils/TrainingLogger.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace mlgokit {

/// The bytes of a policy or a table, and where they are, for messages.
struct Source {
  std::unique_ptr<llvm::MemoryBuffer> File;
  llvm::StringRef Bytes; // empty if there is none
  llvm::StringRef Origin;
};

/// Reads the file at \p Path, which holds \p What; without a path it is \p Embedded.
llvm::Expected<Source> readSource(llvm::StringRef What, llvm::StringRef Path, llvm::StringRef Embedded);

/// Reads and parses the policy for \p P: the file that the settings name, else the one inside the plugin; of several
/// parts the one for the architecture of \p M and \p Stage.
llvm::Expected<Policy> loadPolicy(Problem P, const Settings &S, const llvm::Module &M,
                                  PolicyStage Stage = PolicyStage::Compile);

/// Parses the bytes of a policy for \p P; \p Origin is where they are, for messages.
llvm::Expected<Policy> parsePolicy(Problem P, llvm::StringRef Bytes, llvm::StringRef Origin,
                                   llvm::StringRef Architecture = "", PolicyStage Stage = PolicyStage::Compile);

/// Where each of the policy's features is among \p Known.
llvm::Expected<std::vector<size_t>> findFeatures(const Policy &P, const llvm::StringMap<size_t> &Known);

/// \p Path for the first file of that name that this process opens, then with ".1" after it, ".2" and so on: ThinLTO
/// compiles many modules in one process.
std::string numbered(const std::string &Path);

/// Opens the training log for \p P, or gives null if nobody wants one. Its name is numbered. With \p HasReward, each
/// observation needs one.
llvm::Expected<std::unique_ptr<llvm::Logger>>
openLog(Problem P, const Settings &S, const std::vector<llvm::TensorSpec> &Columns, bool HasReward = false);

} // namespace mlgokit

#endif
