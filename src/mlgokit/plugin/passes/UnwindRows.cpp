#include "passes/UnwindRows.h"

#include "shared/ManyTargets.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/TargetFrameLowering.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/CallingConv.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"
#include "llvm/TargetParser/Triple.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringLiteral FramePointer = "frame-pointer";
constexpr StringLiteral Moves = "mlgokit-moves-constants";

/// Whether pushes and pops in \p F may take rows of an unwind table.
bool hasRows(const Function &F) {
  const Triple Target(F.getParent()->getTargetTriple());
  return Target.isX86() && Target.isOSBinFormatELF() && F.needsUnwindTableEntry();
}

bool callsAny(const Function &F, function_ref<bool(const CallBase &)> IsIt) {
  return any_of(instructions(F), [&](const Instruction &I) {
    const auto *Call = dyn_cast<CallBase>(&I);
    return Call && IsIt(*Call);
  });
}

/// Inline assembly may name the frame pointer, and other calling conventions may pass a value in it.
bool mayUseRbp(const Function &F) {
  auto IsOther = [](CallingConv::ID Convention) {
    return Convention != CallingConv::C && Convention != CallingConv::Fast;
  };
  return IsOther(F.getCallingConv()) || F.hasFnAttribute(Attribute::Naked) ||
         callsAny(F, [&](const CallBase &Call) { return Call.isInlineAsm() || IsOther(Call.getCallingConv()); });
}

/// Where programs executed up to 3 % more: each call executes few of many cases, but sets up the frame; and loops
/// without a call lose a register, which estimates that do not know how often they run do not see.
bool wouldSlowDown(const Function &F) {
  if (hasTargets(F))
    return true;
  DominatorTree Dominators(const_cast<Function &>(F));
  return !LoopInfo(Dominators).empty() && !callsAny(F, [](const CallBase &Call) { return !isa<IntrinsicInst>(Call); });
}

/// X86InstrInfo.td names them.
struct Opcodes {
  unsigned Pushed = 0, Moved = 0;
};

Opcodes findOpcodes(const TargetInstrInfo &TII) {
  Opcodes Found;
  for (unsigned Opcode = 0; Opcode < TII.getNumOpcodes(); ++Opcode)
    if (TII.getName(Opcode) == "MOV32ImmSExti8")
      Found.Pushed = Opcode;
    else if (TII.getName(Opcode) == "MOV32ri")
      Found.Moved = Opcode;
  return Found;
}

} // namespace

bool mayKeepFramePointer(const Function &F) {
  const StringRef Kept = F.getFnAttribute(FramePointer).getValueAsString();
  return (Kept.empty() || Kept == "none") && hasRows(F) &&
         F.getParent()->getDataLayout().getPointerSizeInBits() == 64 && !mayUseRbp(F) && !wouldSlowDown(F);
}

void keepFramePointer(Function &F) { F.addFnAttr(FramePointer, "all"); }

bool mayPushConstants(const Function &F) { return F.hasMinSize() && hasRows(F); }

void forbidPushedConstants(Function &F) { F.addFnAttr(Moves); }

void movePushedConstants(MachineFunction &MF) {
  const TargetSubtargetInfo &Target = MF.getSubtarget();
  if (!MF.getFunction().hasFnAttribute(Moves) || !MF.needsFrameMoves() || Target.getFrameLowering()->hasFP(MF))
    return;
  const TargetInstrInfo &TII = *Target.getInstrInfo();
  static const Opcodes Known = findOpcodes(TII);
  if (!Known.Pushed || !Known.Moved)
    return;
  for (MachineBasicBlock &B : MF)
    for (MachineInstr &I : B)
      if (I.getOpcode() == Known.Pushed)
        I.setDesc(TII.get(Known.Moved));
}

} // namespace mlgokit
