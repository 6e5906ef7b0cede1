// Policies as LLVM's release mode asks them: buffers that LLVM fills, and the answer to what is in them.
//
// mlgokit/export/release.py puts this, the plugin's arithmetic and the numbers of policies into one source. So nothing
// here includes a header of LLVM: the same object fits builds of any version.
#ifndef MLGOKIT_RELEASE_RELEASEMODEL_H
#define MLGOKIT_RELEASE_RELEASEMODEL_H

#include "shared/Evaluator.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace mlgokit {

/// A tensor that LLVM fills.
struct ReleaseInput {
  const char *Name; // with LLVM's prefix
  bool IsFloat;     // or int64_t; the model selector is two uint64_t
  size_t Elements;
};

/// One of the policies of a model.
struct ReleasePolicy {
  const char *Name;   // what a user gives as model selector
  uint64_t High, Low; // MD5 of the name, as LLVM passes it
  PolicyNumbers Numbers;
  std::vector<size_t> Sources; // where each of its features is among the inputs
};

/// Where among the inputs is what LLVM's heuristic for inlining goes by.
struct HeuristicInputs {
  size_t Cost, NestedCalls, NestedCost;
};

class ReleaseModel {
public:
  /// \p Mask, \p Selector and \p Heuristic are inputs: for policies that choose a column, for models of several
  /// policies, and for policies that leave calls to LLVM's heuristic.
  ReleaseModel(std::vector<ReleaseInput> Inputs, std::vector<ReleasePolicy> Policies, std::optional<size_t> Mask,
               std::optional<size_t> Selector, std::optional<HeuristicInputs> Heuristic);

  void *input(size_t Index) { return Buffers[Index].data(); }
  void *answer() { return &Answer; }
  /// Writes the answer to what is in the inputs. A selector that names no policy ends the process with a sentence.
  void run();

private:
  struct Choice {
    ReleasePolicy About;
    Evaluator Numbers;
  };

  Choice &chosen();
  double value(size_t Input, size_t Column) const;
  void fill(const Choice &Of, size_t Column);
  bool heuristicInlines() const;
  bool inlines(Choice &Of);
  int64_t column(Choice &Of);

  const std::vector<ReleaseInput> Inputs;
  const std::optional<size_t> Mask, Selector;
  const std::optional<HeuristicInputs> Heuristic;
  std::vector<Choice> Choices;
  std::vector<std::vector<int64_t>> Buffers; // of all inputs, with room for either type
  std::vector<double> Row, Logits;           // scratch
  union {
    int64_t Index;
    float Priority;
  } Answer = {0};
};

/// Where \p Wanted of \p Length characters is among \p Names, or -1.
int findName(const std::vector<const char *> &Names, const char *Wanted, size_t Length);

} // namespace mlgokit

#endif
