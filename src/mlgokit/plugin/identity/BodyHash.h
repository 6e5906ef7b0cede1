// Hashes of function bodies that hold in another folder, with or without debug information: what keys of call sites
// and tables of decisions are made of (docs/formats.md, "Keys of call sites"). A change in them changes every key of
// every table: raise the magic in inliner/DecisionTable.cpp then.
#ifndef MLGOKIT_IDENTITY_BODYHASH_H
#define MLGOKIT_IDENTITY_BODYHASH_H

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Attributes.h"
#include "llvm/IR/Function.h"

#include <cstdint>

namespace mlgokit {

/// A hash of \p State and \p Value that is the same in every process.
uint64_t mix(uint64_t State, uint64_t Value);

/// Hashes of types and attribute lists, computed once for each of a module.
class TypeHashes {
public:
  uint64_t type(llvm::Type *T);
  /// Without attributes that are strings: they say what the command line was, as in "frame-pointer".
  uint64_t attributes(llvm::AttributeList List);

private:
  llvm::DenseMap<llvm::Type *, uint64_t> Types;
  llvm::DenseMap<void *, uint64_t> Lists;
};

/// Leaves out paths, strings, debug information, line numbers in assertions and names of local values.
uint64_t hashBody(const llvm::Function &F, TypeHashes &Known);

} // namespace mlgokit

#endif
