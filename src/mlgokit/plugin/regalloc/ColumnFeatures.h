// What a policy of evictions sees of one column: its own values, those of the heuristic's column, and what is least,
// greatest and in the mean among all that may be chosen. policy/columns.py is the twin.
#ifndef MLGOKIT_REGALLOC_COLUMNFEATURES_H
#define MLGOKIT_REGALLOC_COLUMNFEATURES_H

#include "shared/Policy.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Analysis/TensorSpec.h"

#include <vector>

namespace mlgokit {

class ColumnFeatures {
public:
  /// How to read element \p 1 of input \p 0.
  using Read = llvm::function_ref<double(size_t, size_t)>;

  /// Finds the features of \p P among \p Inputs, which have one element or one for each of \p Columns.
  static llvm::Expected<ColumnFeatures> find(const Policy &P, const std::vector<llvm::TensorSpec> &Inputs,
                                             size_t Columns);

  /// Whether some feature is about the column that the heuristic chooses.
  bool needsDefault() const { return NeedsDefault; }
  /// Goes to a question: of which columns one may be chosen, and which the heuristic takes.
  void enter(llvm::ArrayRef<int64_t> Mask, size_t Default, Read Value);
  /// The values of one column.
  llvm::ArrayRef<double> row(size_t Column, Read Value);

private:
  enum class Of { Column, Default, Least, Mean, Most };
  struct Source {
    Of From;
    size_t Input; // beyond the inputs: whether it is the last column, and how many may be chosen
    bool IsSingle;
  };
  double valueAt(const Source &S, size_t Column, Read Value) const;

  size_t Columns = 0, Inputs = 0, Legal = 0;
  bool NeedsDefault = false;
  std::vector<Source> Sources;
  std::vector<double> Row;
};

} // namespace mlgokit

#endif
