#include "trials/CodeSize.h"

#include "majors/Fragments.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineJumpTableInfo.h"
#include "llvm/CodeGen/TargetInstrInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/MC/MCContext.h"
#include "llvm/MC/MCSymbol.h"

#include <cstdint>
#include <vector>

using namespace llvm;

namespace mlgokit {

namespace {

/// A part of a function's code, and where it branches to if the distance decides how long it is.
struct Part {
  const MCFragment *Fragment;
  size_t Bytes = 0;
  const MCExpr *Target = nullptr;
  size_t Growth = 0; // of a branch that does not reach as far by one byte
  size_t At = 0;
};

Part partOf(const MCFragment &F) {
  const auto [Bytes, Branch, Target] = encodedIn(F);
  Part P{&F, Bytes, Target};
  const bool IsShort = Branch.size() == 2;
  if (IsShort && uint8_t(Branch[0]) == 0xeb)
    P.Growth = 3; // jmp
  else if (IsShort && (uint8_t(Branch[0]) & 0xf0) == 0x70)
    P.Growth = 4; // jcc
  return P;
}

const MCSymbol *symbolOf(const MCExpr *E) {
  if (const auto *Sum = dyn_cast_or_null<MCBinaryExpr>(E))
    E = Sum->getLHS();
  const auto *Reference = dyn_cast_or_null<MCSymbolRefExpr>(E);
  return Reference ? &Reference->getSymbol() : nullptr;
}

} // namespace

std::optional<size_t> emittedBytes(const MachineFunction &MF) {
  const MCSymbol *Start = MF.getContext().lookupSymbol(MF.getName());
  if (!Start || !Start->isInSection())
    return std::nullopt;
  std::vector<Part> Parts;
  DenseMap<const MCFragment *, size_t> Places;
  for (const MCFragment *F = Start->getFragment(); F; F = F->getNext()) {
    Places[F] = Parts.size();
    Parts.push_back(partOf(*F));
  }
  const auto IsNear = [&](const Part &P) {
    const MCSymbol *To = symbolOf(P.Target);
    if (!To || !To->isTemporary() || !To->isInSection())
      return false;
    const auto Found = Places.find(To->getFragment());
    if (Found == Places.end())
      return false;
    const int64_t Distance = int64_t(Parts[Found->second].At + To->getOffset()) - int64_t(P.At + P.Bytes);
    return Distance >= -128 && Distance <= 127;
  };
  for (bool Grew = true; Grew;) {
    Grew = false;
    size_t At = 0;
    for (Part &P : Parts) {
      P.At = At;
      At += P.Bytes;
    }
    for (Part &P : Parts)
      if (P.Growth && !IsNear(P)) {
        P.Bytes += P.Growth;
        P.Growth = 0;
        Grew = true;
      }
  }
  return Parts.back().At + Parts.back().Bytes - size_t(Start->getOffset());
}

std::optional<size_t> machineBytes(const MachineFunction &MF) {
  const TargetInstrInfo &Instructions = *MF.getSubtarget().getInstrInfo();
  size_t Bytes = 0;
  for (const MachineBasicBlock &Block : MF)
    for (const MachineInstr &I : Block) {
      const unsigned Size = Instructions.getInstSizeInBytes(I);
      if (Size == ~0U) // of targets that do not say
        return std::nullopt;
      Bytes += Size;
    }
  return Bytes;
}

size_t relaxedBytes(const MachineFunction &MF) {
  const TargetSubtargetInfo &Target = MF.getSubtarget();
  if (!Target.getTargetTriple().isRISCV() || !Target.checkFeatures("+relax"))
    return 0;
  size_t Bytes = 0;
  for (const MachineBasicBlock &Block : MF)
    for (const MachineInstr &I : Block)
      if (I.isCall() && Target.getInstrInfo()->getInstSizeInBytes(I) == 8)
        Bytes += 4;
  return Bytes;
}

size_t jumpTableBytes(const MachineFunction &MF) {
  const MachineJumpTableInfo *Tables = MF.getJumpTableInfo();
  size_t Entries = 0;
  if (Tables)
    for (const MachineJumpTableEntry &Table : Tables->getJumpTables())
      Entries += Table.MBBs.size();
  return Entries ? Entries * Tables->getEntrySize(MF.getDataLayout()) : 0;
}

} // namespace mlgokit
