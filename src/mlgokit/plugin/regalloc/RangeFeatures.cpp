#include "regalloc/RangeFeatures.h"

#include "shared/MinSize.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineInstr.h"
#include "llvm/CodeGen/MachineRegisterInfo.h"
#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/CodeGen/TargetRegisterInfo.h"
#include "llvm/IR/Function.h"

#include <algorithm>
#include <cassert>
#include <iterator>

using namespace llvm;

namespace mlgokit {

namespace {

#define MLGOKIT_RANGE_FEATURES(X)                                                                                      \
  X(heuristic_priority)                                                                                                \
  X(fine_weight)                                                                                                       \
  X(position)                                                                                                          \
  X(instructions)                                                                                                      \
  X(definitions)                                                                                                       \
  X(cheap_definitions)                                                                                                 \
  X(is_local)                                                                                                          \
  X(values)                                                                                                            \
  X(segments)                                                                                                          \
  X(has_hint)                                                                                                          \
  X(has_physical_hint)                                                                                                 \
  X(class_registers)                                                                                                   \
  X(class_priority)                                                                                                    \
  X(is_minsize)                                                                                                        \
  X(calls_across)                                                                                                      \
  X(registers)

struct Observed {
#define MLGOKIT_FIELD(NAME) float NAME = 0;
  MLGOKIT_RANGE_FEATURES(MLGOKIT_FIELD)
#undef MLGOKIT_FIELD
};

constexpr StringRef Names[] = {
#define MLGOKIT_NAME(NAME) #NAME,
    MLGOKIT_RANGE_FEATURES(MLGOKIT_NAME)
#undef MLGOKIT_NAME
};

#undef MLGOKIT_RANGE_FEATURES

// Weights are far below 1 for long live ranges, where a logarithm of one plus the weight would see no difference.
constexpr float FineUnit = 65536, MostFine = 1099511627776;
constexpr float Positions = 65536;

Observed observed(const MachineFunction &MF, const SlotIndexes &Indexes, const LiveInterval &Range, unsigned Heuristic,
                  ArrayRef<SlotIndex> Calls) {
  const MachineRegisterInfo &Registers = MF.getRegInfo();
  auto &Slots = const_cast<SlotIndexes &>(Indexes); // its first and last index have no const accessors
  Observed O;
  O.heuristic_priority = float(Heuristic);
  O.fine_weight = std::min(Range.weight() * FineUnit, MostFine);
  const float Whole = float(Slots.getZeroIndex().distance(Slots.getLastIndex()));
  // What is used without a value has an empty one.
  if (Whole > 0 && !Range.empty())
    O.position = Positions * float(Slots.getZeroIndex().distance(Range.beginIndex())) / Whole;
  const MachineBasicBlock *Block = nullptr;
  O.is_local = 1;
  for (const MachineInstr &I : Registers.reg_nodbg_instructions(Range.reg())) {
    if (Block && Block != I.getParent())
      O.is_local = 0;
    Block = I.getParent();
    ++O.instructions;
  }
  for (const MachineInstr &I : Registers.def_instructions(Range.reg())) {
    ++O.definitions;
    O.cheap_definitions += I.isAsCheapAsAMove();
  }
  O.values = float(Range.getNumValNums());
  O.segments = float(Range.size());
  const Register Hint = Registers.getSimpleHint(Range.reg());
  O.has_hint = Hint.isValid();
  O.has_physical_hint = Hint.isPhysical();
  const TargetRegisterClass &Class = *Registers.getRegClass(Range.reg());
  O.class_registers = Class.getNumRegs();
  O.class_priority = Class.AllocationPriority;
  O.is_minsize = isForSize(MF.getFunction());
  for (const LiveRange::Segment &S : Range)
    O.calls_across += float(lower_bound(Calls, S.end) - lower_bound(Calls, S.start));
  O.registers = float(Registers.getNumVirtRegs());
  return O;
}

} // namespace

ArrayRef<StringRef> rangeFeatureNames() { return Names; }

void RangeObserver::observe(const LiveInterval &Range, unsigned Heuristic, MutableArrayRef<float> Found) {
  static_assert(sizeof(Observed) == std::size(Names) * sizeof(float), "nothing but the features");
  assert(Found.size() == std::size(Names));
  if (!KnowsCalls)
    findCalls();
  const Observed O = observed(MF, Indexes, Range, Heuristic, Calls);
  const auto *Begin = reinterpret_cast<const float *>(&O);
  std::copy(Begin, Begin + std::size(Names), Found.begin());
}

void RangeObserver::findCalls() {
  KnowsCalls = true;
  for (const MachineBasicBlock &Block : MF)
    for (const MachineInstr &I : Block)
      if (Indexes.hasIndex(I) &&
          any_of(I.operands(), [](const MachineOperand &Operand) { return Operand.isRegMask(); }))
        Calls.push_back(Indexes.getInstructionIndex(I).getRegSlot());
  sort(Calls); // blocks may stand in another order than their indexes
}

} // namespace mlgokit
