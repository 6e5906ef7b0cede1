// What the user asked of the plugin: command-line options first, then the environment, then the policy inside the file.
#ifndef MLGOKIT_SETTINGS_H
#define MLGOKIT_SETTINGS_H

#include "llvm/Support/Error.h"

#include <cstdint>
#include <optional>
#include <string>

namespace mlgokit {

struct Settings {
  std::string Policy;         // a path, or one of :default :never :always; empty for the embedded policy
  std::string Log;            // where to write the training log; empty for none
  uint64_t Seed = 0;          // of exploration
  double Temperature = 0;     // of the sampled decision; 0 acts greedily
  double FlipProbability = 0; // of turning a decision round after that
  bool AnyLevel = false;      // also decide in modules that were not compiled for size
};

/// Adds the options to LLVM's command line, unless another plugin of ours has done so.
void registerOptions();

/// Reads the settings; a value that is no number is an error naming the option or variable.
llvm::Expected<Settings> readSettings();

/// The policy linked into this very plugin (`mlgokit export plugin`), if there is one.
llvm::StringRef embeddedPolicy();

} // namespace mlgokit

#endif
