#include "regalloc/FunctionShape.h"

#include "shared/ByteWriter.h"

#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineInstr.h"
#include "llvm/CodeGen/MachineRegisterInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/BLAKE3.h"

#include <cstring>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr uint32_t NoNumber = ~uint32_t(0);

uint64_t hashOf(const ByteWriter &Fields) {
  TruncatedBLAKE3<8> Hash;
  Hash.update(Fields.bytes());
  uint64_t Value;
  const auto Result = Hash.result();
  std::memcpy(&Value, Result.data(), sizeof Value);
  return Value;
}

} // namespace

FunctionShape::FunctionShape(const MachineFunction &MF) {
  const MachineRegisterInfo &Registers = MF.getRegInfo();
  Numbers.assign(Registers.getNumVirtRegs(), NoNumber);
  DenseMap<const MachineBasicBlock *, unsigned> Places;
  for (const MachineBasicBlock &B : MF) {
    Places.try_emplace(&B, Places.size());
    for (const MachineInstr &I : B)
      if (!I.isDebugOrPseudoInstr())
        for (const MachineOperand &Operand : I.operands())
          if (Operand.isReg() && Operand.getReg().isVirtual())
            Numbers[Operand.getReg().virtRegIndex()] = 0;
  }
  ByteWriter Out;
  const Function &F = MF.getFunction();
  Out.add(MF.getName());
  Out.add(uint64_t(F.hasMinSize() + 2 * F.hasOptSize()));
  Out.add(uint64_t(F.getCallingConv()));
  for (const char *Name : {"target-cpu", "target-features"})
    Out.add(F.getFnAttribute(Name).getValueAsString());
  for (int R : Registers.getReservedRegs().set_bits())
    Out.add(uint64_t(R));
  for (uint32_t I = 0; I < Numbers.size(); ++I)
    if (Numbers[I] != NoNumber) {
      Numbers[I] = Used++;
      const Register R = Register::index2VirtReg(I);
      const TargetRegisterClass *Class = Registers.getRegClassOrNull(R);
      Out.add(uint64_t(Class ? Class->getID() + 1 : 0));
    }
  const size_t MaskWords = MachineOperand::getRegMaskSize(MF.getSubtarget().getRegisterInfo()->getNumRegs());
  for (const MachineBasicBlock &B : MF) {
    Out.add(uint64_t(B.isEHPad() + 2 * B.succ_size()));
    for (auto Next = B.succ_begin(); Next != B.succ_end(); ++Next) {
      Out.add(uint64_t(Places.lookup(*Next)));
      Out.add(uint64_t(B.getSuccProbability(Next).getNumerator()));
    }
    for (const auto &In : B.liveins())
      Out.add(uint64_t(In.PhysReg));
    for (const MachineInstr &I : B) {
      if (I.isDebugOrPseudoInstr())
        continue;
      Out.add(uint64_t(I.getOpcode()));
      Out.add(uint64_t(I.getNumOperands()));
      for (const MachineOperand &Operand : I.operands()) {
        Out.add(uint64_t(Operand.getType()));
        if (Operand.isReg()) {
          const Register R = Operand.getReg();
          Out.add(uint64_t(R.isVirtual() ? 2 * uint64_t(Numbers[R.virtRegIndex()]) + 1 : 2 * uint64_t(R.id())));
          Out.add(uint64_t(Operand.getSubReg()));
          Out.add(uint64_t(Operand.isDef() + 2 * Operand.isImplicit() + 4 * Operand.isTied() + 8 * Operand.isUndef() +
                           16 * Operand.isEarlyClobber()));
        } else if (Operand.isImm()) {
          Out.add(uint64_t(Operand.getImm()));
        } else if (Operand.isMBB()) {
          Out.add(uint64_t(Places.lookup(Operand.getMBB())));
        } else if (Operand.isFI() || Operand.isCPI() || Operand.isJTI()) {
          Out.add(uint64_t(Operand.getIndex()));
        } else if (Operand.isRegMask()) {
          for (uint32_t Word : ArrayRef<uint32_t>(Operand.getRegMask(), MaskWords))
            Out.add(uint64_t(Word));
        }
      }
    }
  }
  Key = hashOf(Out);
}

uint32_t FunctionShape::numberOf(Register R) const {
  const uint32_t Index = R.virtRegIndex();
  // A register that only debug information had is never asked about.
  return Index < Numbers.size() ? Numbers[Index] : Used + (Index - uint32_t(Numbers.size()));
}

} // namespace mlgokit
