#include "regalloc/Allocation.h"

#include "shared/Exploration.h"
#include "shared/Files.h"
#include "regalloc/Trials.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineInstr.h"
#include "llvm/CodeGen/MachineRegisterInfo.h"
#include "llvm/CodeGen/TargetSubtargetInfo.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/BLAKE3.h"

#include <algorithm>
#include <cstring>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGORT1\n", 8);
constexpr uint32_t NoNumber = ~uint32_t(0);

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("allocation table " + Origin + ": " + What).str());
}

uint64_t placeOf(uint32_t Range, uint32_t Nth) { return uint64_t(Range) << 32 | Nth; }

/// Everything about a function that the allocator goes by, as bytes.
class Writer {
public:
  void add(uint64_t Value) {
    do {
      Bytes.push_back(uint8_t((Value & 127) | (Value > 127 ? 128 : 0)));
      Value >>= 7;
    } while (Value);
  }
  void add(StringRef Value) {
    add(uint64_t(Value.size()));
    Bytes.append(Value.bytes_begin(), Value.bytes_end());
  }
  void addBits(ArrayRef<uint32_t> Words) {
    for (uint32_t Word : Words)
      add(uint64_t(Word));
  }
  uint64_t hash() const {
    TruncatedBLAKE3<8> Hash;
    Hash.update(Bytes);
    uint64_t Value;
    const auto Result = Hash.result();
    std::memcpy(&Value, Result.data(), sizeof Value);
    return Value;
  }

private:
  SmallVector<uint8_t, 0> Bytes;
};

} // namespace

Expected<AllocationTable> AllocationTable::parse(StringRef Bytes, StringRef Origin) {
  if (!Bytes.starts_with(Magic))
    return failure(Origin, "expected a file that `mlgokit tune` wrote, found another");
  FileReader In(Bytes.drop_front(Magic.size()));
  AllocationTable Table;
  uint32_t Count = 0;
  bool Whole = In.read(&Count);
  for (uint32_t I = 0; Whole && I < Count; ++I) {
    uint64_t Key = 0;
    uint32_t Counts[2] = {};
    Departures Entry;
    Whole = In.read(&Key) && In.read(Counts, 2) && In.read(Entry.Evictions, Counts[0]) &&
            In.read(Entry.Priorities, Counts[1]);
    if (Whole && !Table.Keys.empty() && Key <= Table.Keys.back())
      return failure(Origin, "its keys are not in order; it is damaged");
    Table.Keys.push_back(Key);
    Table.Entries.push_back(std::move(Entry));
  }
  uint32_t Length = 0; // of what the search found, for people
  if (!Whole || !In.read(&Length))
    return failure(Origin, "it is cut short");
  if (Length != In.left())
    return failure(Origin, "it is not as long as it says");
  return Table;
}

const Departures *AllocationTable::find(uint64_t Key) const {
  auto Found = std::lower_bound(Keys.begin(), Keys.end(), Key);
  return Found == Keys.end() || *Found != Key ? nullptr : &Entries[size_t(Found - Keys.begin())];
}

Expected<std::optional<AllocationTable>> loadAllocations(const Settings &S) {
  Expected<Source> Found = readSource("allocation table", S.Allocations, embeddedAllocations());
  if (!Found)
    return Found.takeError();
  if (Found->Bytes.empty())
    return std::nullopt;
  Expected<AllocationTable> Parsed = AllocationTable::parse(Found->Bytes, Found->Origin);
  if (!Parsed)
    return Parsed.takeError();
  return std::move(*Parsed);
}

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
  Writer Out;
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
          Out.addBits({Operand.getRegMask(), MaskWords});
        }
      }
    }
  }
  Key = Out.hash();
}

uint32_t FunctionShape::numberOf(Register R) const {
  const uint32_t Index = R.virtRegIndex();
  // A register that only debug information had is never asked about.
  return Index < Numbers.size() ? Numbers[Index] : Used + (Index - uint32_t(Numbers.size()));
}

Course::Course(ArrayRef<Departure> Fixed, double FlipProbability, uint64_t Seed)
    : FlipProbability(FlipProbability), Seed(Seed) {
  for (const Departure &D : Fixed)
    Known.try_emplace(placeOf(D.Range, D.Nth), D.Choice);
}

std::optional<Course::Turn> Course::next(uint32_t Range) {
  const uint32_t Nth = Asked[Range]++;
  const Draw D = drawAt(Seed, Questions++);
  LastFits = Nth <= UINT16_MAX;
  Last = {Range, uint16_t(Nth), 0};
  if (!LastFits)
    return std::nullopt;
  auto Found = Known.find(placeOf(Range, Nth));
  if (D.Flip < FlipProbability) {
    if (Found == Known.end())
      return Turn{std::nullopt, D.Choice};
    // Half of the flips of a departure take it back.
    return D.Choice < 0.5 ? std::nullopt : std::optional<Turn>(Turn{std::nullopt, 2 * D.Choice - 1});
  }
  if (Found == Known.end())
    return std::nullopt;
  return Turn{Found->second, 0};
}

size_t Course::turn(const Turn &T, ArrayRef<int64_t> Mask, size_t Default) {
  SmallVector<size_t, 64> Others;
  for (size_t C = 0; C < Mask.size(); ++C)
    if (Mask[C] && C != Default && (!T.Choice || *T.Choice == C))
      Others.push_back(C);
  if (Others.empty())
    return Default;
  const size_t Column = Others[size_t(T.Drawn * double(Others.size()))];
  depart(uint16_t(Column));
  return Column;
}

void Course::depart(uint16_t Choice) {
  if (!LastFits)
    return;
  Last.Choice = Choice;
  Made.push_back(Last);
}

namespace {

constexpr uint16_t FromRange = 0x8000; // smaller choices are numbers of earlier questions
constexpr unsigned KeptBits = 17;

std::optional<unsigned> chosenPriority(uint16_t Choice, unsigned Default, ArrayRef<unsigned> Given) {
  if (Choice >= FromRange)
    return unsigned(Choice - FromRange) << KeptBits | (Default & ((1u << KeptBits) - 1));
  if (Choice >= Given.size())
    return std::nullopt;
  return std::max(Given[Choice], Given[Choice] + 1);
}

} // namespace

unsigned Plan::priority(unsigned Default, const std::optional<Course::Turn> &Turned) {
  std::optional<unsigned> Value;
  if (Turned) {
    // One half of the drawn choices are the priority of another live range, the other any at all.
    const double Drawn = 2 * Turned->Drawn;
    const uint16_t Choice = Turned->Choice ? *Turned->Choice
                            : Drawn < 1    ? uint16_t(Drawn * double(std::min(Given.size(), size_t(FromRange))))
                                           : uint16_t(FromRange + (Drawn - 1) * FromRange);
    if ((Value = chosenPriority(Choice, Default, Given)))
      Priorities.depart(Choice);
  }
  Given.push_back(Value.value_or(Default));
  return Given.back();
}

unsigned Plan::priorityNear(unsigned Wanted, unsigned Default) {
  const uint16_t Choice = FromRange + uint16_t(Wanted >> KeptBits);
  Priorities.depart(Choice);
  Given.push_back(*chosenPriority(Choice, Default, Given));
  return Given.back();
}

namespace {

struct Entered {
  const MachineFunction *Function = nullptr;
  std::unique_ptr<Plan> Now;
};
thread_local Entered Current;

} // namespace

Plan *enterFunction(const MachineFunction &MF, const AllocationTable *Table) {
  endTrial(/*IsThere=*/true);
  Current.Function = &MF;
  Current.Now.reset();
  if (!Table && !hasTrials())
    return nullptr;
  FunctionShape Shape(MF);
  if (hasTrials())
    Current.Now = runTrials(MF, Shape);
  if (const Departures *Known = Table && !Current.Now ? Table->find(Shape.key()) : nullptr)
    Current.Now.reset(new Plan{std::move(Shape), Course(Known->Evictions, 0, 0), Course(Known->Priorities, 0, 0)});
  return Current.Now.get();
}

Plan *planOf(const MachineFunction &MF) { return Current.Function == &MF ? Current.Now.get() : nullptr; }

} // namespace mlgokit
