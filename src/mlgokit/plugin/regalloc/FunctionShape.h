// What a function is to the register allocator: the key of allocation tables, and numbers for live ranges.
// A change in it changes every allocation table: raise the magic in trials/OverrideTable.cpp then.
#ifndef MLGOKIT_REGALLOC_FUNCTIONSHAPE_H
#define MLGOKIT_REGALLOC_FUNCTIONSHAPE_H

#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/Register.h"

#include <cstdint>
#include <vector>

namespace mlgokit {

/// A function as it comes to the allocator.
class FunctionShape {
public:
  explicit FunctionShape(const llvm::MachineFunction &MF);
  /// The same only for functions of one name that give the allocator the same questions, with or without debug
  /// information.
  uint64_t key() const { return Key; }
  /// The number of a live range: registers of the code in their order, then those that splitting makes.
  uint32_t numberOf(llvm::Register R) const;

private:
  std::vector<uint32_t> Numbers; // by virtual register
  uint32_t Used = 0;
  uint64_t Key = 0;
};

} // namespace mlgokit

#endif
