#include "passes/MachineFeatures.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineFrameInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineInstr.h"
#include "llvm/CodeGen/MachineRegisterInfo.h"

#include <algorithm>
#include <cassert>
#include <iterator>

using namespace llvm;

namespace mlgokit {

namespace {

// Jumps say what another order of the blocks could save, and cheap instructions what is as well computed again.
#define MLGOKIT_MACHINE_FEATURES(X)                                                                                    \
  X(machine_blocks)                                                                                                    \
  X(machine_instructions)                                                                                              \
  X(machine_copies)                                                                                                    \
  X(machine_phis)                                                                                                      \
  X(machine_loads)                                                                                                     \
  X(machine_stores)                                                                                                    \
  X(machine_calls)                                                                                                     \
  X(machine_immediates)                                                                                                \
  X(machine_cheap)                                                                                                     \
  X(machine_returns)                                                                                                   \
  X(jumps)                                                                                                             \
  X(jumps_to_next)                                                                                                     \
  X(jumps_back)                                                                                                        \
  X(conditional_jumps)                                                                                                 \
  X(double_jumps)                                                                                                      \
  X(fallthroughs)                                                                                                      \
  X(stack_objects)                                                                                                     \
  X(virtual_registers)

struct Counts {
#define MLGOKIT_FIELD(NAME) int64_t NAME = 0;
  MLGOKIT_MACHINE_FEATURES(MLGOKIT_FIELD)
#undef MLGOKIT_FIELD
};

constexpr StringRef Names[] = {
#define MLGOKIT_NAME(NAME) #NAME,
    MLGOKIT_MACHINE_FEATURES(MLGOKIT_NAME)
#undef MLGOKIT_NAME
};

#undef MLGOKIT_MACHINE_FEATURES

const MachineBasicBlock *targetOf(const MachineInstr &Jump) {
  for (const MachineOperand &Operand : Jump.operands())
    if (Operand.isMBB())
      return Operand.getMBB();
  return nullptr;
}

void countEnd(const MachineBasicBlock &B, Counts &C) {
  int64_t Plain = 0, Conditional = 0;
  for (const MachineInstr &I : B.terminators()) {
    if (!I.isBranch() || I.isIndirectBranch())
      continue;
    ++(I.isConditionalBranch() ? Conditional : Plain);
    const MachineBasicBlock *Target = targetOf(I);
    C.jumps_to_next += !I.isConditionalBranch() && Target && B.isLayoutSuccessor(Target);
    C.jumps_back += Target && Target->getNumber() <= B.getNumber();
  }
  C.jumps += Plain;
  C.conditional_jumps += Conditional;
  C.double_jumps += Plain && Conditional;
  C.fallthroughs += !Plain && !B.isReturnBlock() && !B.succ_empty();
  C.machine_returns += B.isReturnBlock();
}

Counts count(const MachineFunction &MF) {
  Counts C;
  for (const MachineBasicBlock &B : MF) {
    ++C.machine_blocks;
    for (const MachineInstr &I : B) {
      if (I.isDebugOrPseudoInstr())
        continue;
      ++C.machine_instructions;
      C.machine_copies += I.isCopy();
      C.machine_phis += I.isPHI();
      C.machine_loads += I.mayLoad();
      C.machine_stores += I.mayStore();
      C.machine_calls += I.isCall();
      C.machine_immediates += I.isMoveImmediate();
      C.machine_cheap += I.isAsCheapAsAMove();
    }
    countEnd(B, C);
  }
  C.stack_objects = int64_t(MF.getFrameInfo().getNumObjects());
  C.virtual_registers = MF.getRegInfo().getNumVirtRegs();
  return C;
}

} // namespace

ArrayRef<StringRef> machineFeatureNames() { return Names; }

void countMachineFeatures(const MachineFunction *MF, MutableArrayRef<int64_t> Found) {
  static_assert(sizeof(Counts) == std::size(Names) * sizeof(int64_t), "nothing but the counts");
  assert(Found.size() == std::size(Names));
  const Counts C = MF ? count(*MF) : Counts();
  const auto *Begin = reinterpret_cast<const int64_t *>(&C);
  std::copy(Begin, Begin + std::size(Names), Found.begin());
}

} // namespace mlgokit
