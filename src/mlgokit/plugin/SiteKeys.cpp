#include "SiteKeys.h"

#include "Features.h"

#include "llvm/ADT/Hashing.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Metadata.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MD5.h"

#include <algorithm>
#include <cstring>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr const char *MarkName = "mlgokit.site";
constexpr unsigned DeepestConstant = 6;

uint64_t mix(uint64_t State, uint64_t Value) {
  // SplitMix64's finalizer; llvm::hash_combine may differ from one process to the next.
  uint64_t Z = State * 0x9E3779B97F4A7C15 + Value + 0x632BE59BD9B4E019;
  Z = (Z ^ (Z >> 30)) * 0xBF58476D1CE4E5B9;
  Z = (Z ^ (Z >> 27)) * 0x94D049BB133111EB;
  return Z ^ (Z >> 31);
}

/// Hashes one body; values are known by the order in which they stand.
class BodyHash {
public:
  explicit BodyHash(const Function &F) {
    add(MD5Hash(F.getName()));
    type(F.getFunctionType());
    add(F.hasMinSize() + 2 * F.hasOptSize() + 4 * F.doesNotThrow() + 8 * F.hasFnAttribute(Attribute::NoInline) +
        16 * F.hasLocalLinkage() + 32 * F.hasComdat());
    for (const Argument &A : F.args())
      number(A);
    for (const BasicBlock &B : F) {
      number(B);
      for (const Instruction &I : B)
        if (!isa<DbgInfoIntrinsic>(I))
          number(I);
    }
    for (const BasicBlock &B : F)
      for (const Instruction &I : B)
        if (!isa<DbgInfoIntrinsic>(I))
          instruction(I);
  }
  uint64_t value() const { return State; }

private:
  void add(uint64_t Value) { State = mix(State, Value); }
  void number(const Value &V) { Numbers.try_emplace(&V, Numbers.size()); }

  void type(const Type *T) {
    add(T->getTypeID());
    if (const auto *Int = dyn_cast<IntegerType>(T))
      add(Int->getBitWidth());
    else if (const auto *Array = dyn_cast<ArrayType>(T))
      add(Array->getNumElements());
    else if (const auto *Vector = dyn_cast<VectorType>(T))
      add(Vector->getElementCount().getKnownMinValue());
    if (!T->isPointerTy())
      for (const Type *Part : T->subtypes())
        type(Part);
  }

  void instruction(const Instruction &I) {
    add(I.getOpcode());
    type(I.getType());
    if (const auto *Compare = dyn_cast<CmpInst>(&I))
      add(Compare->getPredicate());
    else if (const auto *Address = dyn_cast<GetElementPtrInst>(&I))
      type(Address->getSourceElementType());
    else if (const auto *Slot = dyn_cast<AllocaInst>(&I))
      type(Slot->getAllocatedType());
    else if (const auto *Phi = dyn_cast<PHINode>(&I))
      for (const BasicBlock *From : Phi->blocks())
        operand(*From, 0);
    add(I.getNumOperands());
    for (const Use &U : I.operands())
      operand(*U.get(), 0);
  }

  void operand(const Value &V, unsigned Depth) {
    if (auto Known = Numbers.find(&V); Known != Numbers.end()) {
      add(Known->second);
      return;
    }
    add(V.getValueID());
    if (const auto *Global = dyn_cast<GlobalValue>(&V)) {
      // Private names are numbered through the module, and what a string says may be a path.
      if (Global->hasPrivateLinkage())
        add(1);
      else
        add(MD5Hash(Global->getName()));
      return;
    }
    if (const auto *Int = dyn_cast<ConstantInt>(&V)) {
      for (unsigned Word = 0; Word < Int->getValue().getNumWords(); ++Word)
        add(Int->getValue().getRawData()[Word]);
      return;
    }
    if (const auto *Real = dyn_cast<ConstantFP>(&V)) {
      const APInt Bits = Real->getValueAPF().bitcastToAPInt();
      for (unsigned Word = 0; Word < Bits.getNumWords(); ++Word)
        add(Bits.getRawData()[Word]);
      return;
    }
    if (const auto *Asm = dyn_cast<InlineAsm>(&V)) {
      add(MD5Hash(Asm->getAsmString()));
      return;
    }
    if (const auto *C = dyn_cast<Constant>(&V)) {
      type(C->getType());
      if (Depth < DeepestConstant)
        for (const Use &U : C->operands())
          operand(*U.get(), Depth + 1);
    }
  }

  uint64_t State = 0;
  DenseMap<const Value *, uint64_t> Numbers;
};

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("decision table " + Origin + ": " + What).str());
}

constexpr StringRef Magic("MLGODT1\n", 8);
constexpr uint32_t PlainFlag = 1;

} // namespace

unsigned SiteKeys::mark(LLVMContext &Context) { return Context.getMDKindID(MarkName); }

SiteKeys::SiteKeys(Module &M) : Kind(mark(M.getContext())) {
  LLVMContext &Context = M.getContext();
  Type *Number = Type::getInt64Ty(Context);
  for (Function &F : M) {
    if (F.isDeclaration())
      continue;
    const uint64_t Body = BodyHash(F).value();
    Bodies[&F] = Body;
    uint64_t Place = 0;
    for (BasicBlock &B : F)
      for (Instruction &I : B)
        if (auto *Call = dyn_cast<CallBase>(&I); Call && !isa<IntrinsicInst>(I))
          Call->setMetadata(
              Kind, MDNode::get(Context, ConstantAsMetadata::get(ConstantInt::get(Number, mix(Body, Place++)))));
  }
}

uint64_t SiteKeys::next(const CallBase &Call) {
  uint64_t Written = 0;
  if (const MDNode *Mark = Call.getMetadata(Kind))
    Written = mdconst::extract<ConstantInt>(Mark->getOperand(0))->getZExtValue();
  const uint64_t Site = mix(mix(Bodies.lookup(Call.getCaller()), Written), Bodies.lookup(Call.getCalledFunction()));
  return mix(Site, Asked[Site]++) & ~uint64_t(1);
}

Expected<DecisionTable> DecisionTable::parse(StringRef Bytes, StringRef Origin) {
  if (!Bytes.starts_with(Magic) || Bytes.size() < Magic.size() + 4)
    return failure(Origin, "expected a file that `mlgokit tune` wrote, found another");
  size_t At = Magic.size();
  auto Room = [&](uint64_t Needed) { return Needed <= Bytes.size() - At; };
  auto Word = [&] {
    const uint32_t Value = support::endian::read32le(Bytes.data() + At);
    At += 4;
    return Value;
  };
  auto Long = [&] {
    const uint64_t Value = support::endian::read64le(Bytes.data() + At);
    At += 8;
    return Value;
  };
  DecisionTable Table;
  const uint32_t Modules = Word();
  for (uint32_t I = 0; I < Modules; ++I) {
    if (!Room(12))
      return failure(Origin, "it is cut short");
    const uint32_t Names = Word(), Keys = Word(), Flags = Word();
    if (!Room(8 * (uint64_t(Names) + Keys)))
      return failure(Origin, "it is cut short");
    Entry E;
    E.Plain = Flags & PlainFlag;
    for (uint32_t J = 0; J < Names; ++J)
      Table.Owners[Long()].push_back(I);
    E.Keys.reserve(Keys);
    for (uint32_t J = 0; J < Keys; ++J)
      E.Keys.push_back(Long());
    if (!std::is_sorted(E.Keys.begin(), E.Keys.end()))
      return failure(Origin, "its keys are not in order; it is damaged");
    Table.Entries.push_back(std::move(E));
  }
  if (At != Bytes.size())
    return failure(Origin, "it is longer than it says");
  return Table;
}

const DecisionTable::Entry *DecisionTable::find(const Module &M) const {
  std::vector<uint32_t> Shared(Entries.size());
  for (const Function &F : M)
    if (!F.isDeclaration() && F.hasExternalLinkage())
      if (auto Found = Owners.find(uint64_t(functionId(F))); Found != Owners.end())
        for (uint32_t I : Found->second)
          ++Shared[I];
  auto Best = std::max_element(Shared.begin(), Shared.end());
  return Best == Shared.end() || *Best == 0 ? nullptr : &Entries[Best - Shared.begin()];
}

std::optional<bool> DecisionTable::decision(const Entry &E, uint64_t Key) {
  auto Found = std::lower_bound(E.Keys.begin(), E.Keys.end(), Key);
  if (Found == E.Keys.end() || (*Found & ~uint64_t(1)) != Key)
    return std::nullopt;
  return *Found & 1;
}

} // namespace mlgokit
