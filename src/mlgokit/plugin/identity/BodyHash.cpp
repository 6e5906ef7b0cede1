#include "identity/BodyHash.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/xxhash.h"

using namespace llvm;

namespace mlgokit {

uint64_t mix(uint64_t State, uint64_t Value) {
  // SplitMix64's finalizer; llvm::hash_combine may differ from one process to the next.
  uint64_t Z = State * 0x9E3779B97F4A7C15 + Value + 0x632BE59BD9B4E019;
  Z = (Z ^ (Z >> 30)) * 0xBF58476D1CE4E5B9;
  Z = (Z ^ (Z >> 27)) * 0x94D049BB133111EB;
  return Z ^ (Z >> 31);
}

uint64_t TypeHashes::type(Type *T) {
  if (auto Found = Types.find(T); Found != Types.end())
    return Found->second;
  uint64_t State = mix(T->getTypeID(), T->getNumContainedTypes());
  if (const auto *Int = dyn_cast<IntegerType>(T))
    State = mix(State, Int->getBitWidth());
  else if (const auto *Pointer = dyn_cast<PointerType>(T))
    State = mix(State, Pointer->getAddressSpace());
  else if (const auto *Array = dyn_cast<ArrayType>(T))
    State = mix(State, Array->getNumElements());
  else if (const auto *Vector = dyn_cast<VectorType>(T))
    State = mix(State, Vector->getElementCount().getKnownMinValue());
  else if (const auto *Struct = dyn_cast<StructType>(T))
    State = mix(State, Struct->isPacked());
  else if (const auto *Signature = dyn_cast<FunctionType>(T))
    State = mix(State, Signature->isVarArg());
  for (Type *Part : T->subtypes())
    State = mix(State, type(Part));
  return Types[T] = State;
}

uint64_t TypeHashes::attributes(AttributeList List) {
  if (auto Found = Lists.find(List.getRawPointer()); Found != Lists.end())
    return Found->second;
  uint64_t State = 0;
  for (unsigned Index : List.indexes())
    for (Attribute A : List.getAttributes(Index)) {
      if (A.isStringAttribute())
        continue;
      State = mix(mix(State, Index), A.getKindAsEnum());
      if (A.isIntAttribute())
        State = mix(State, A.getValueAsInt());
      else if (A.isTypeAttribute() && A.getValueAsType())
        State = mix(State, type(A.getValueAsType()));
    }
  return Lists[List.getRawPointer()] = State;
}

namespace {

constexpr unsigned DeepestConstant = 6;

/// ThinLTO gives what it exports of local linkage a name with a hash of the whole module, and strings are numbered.
StringRef ownName(const GlobalValue &G) {
  // Most names are long and have no dot, which is seen sooner.
  if (!G.getName().contains('.'))
    return G.getName();
  const auto [Own, Module] = G.getName().rsplit(".llvm.");
  if (Module.empty())
    return Own;
  const auto [Name, Number] = Own.rsplit('.');
  return !Number.empty() && all_of(Number, isDigit) ? Name : Own;
}

/// Hashes one body; values are known by the order in which they stand.
class BodyHash {
public:
  BodyHash(const Function &F, TypeHashes &Known) : Known(Known) {
    add(xxh3_64bits(ownName(F)));
    add(Known.type(F.getFunctionType()));
    add(Known.attributes(F.getAttributes()));
    add(F.getCallingConv());
    add(F.getLinkage() + 64 * F.hasComdat());
    size_t Count = F.arg_size() + F.size();
    for (const BasicBlock &B : F)
      Count += B.size();
    Numbers.reserve(unsigned(Count));
    for (const Argument &A : F.args())
      number(A);
    for (const BasicBlock &B : F) {
      number(B);
      for (const Instruction &I : B)
        if (!isa<DbgInfoIntrinsic>(I))
          number(I);
    }
    add(F.getNumOperands());
    for (const Use &U : F.operands())
      operand(*U.get(), 0);
    for (const BasicBlock &B : F)
      for (const Instruction &I : B)
        if (!isa<DbgInfoIntrinsic>(I))
          instruction(I);
  }
  uint64_t value() const { return State; }

private:
  void add(uint64_t Value) { State = mix(State, Value); }
  /// A block without a use may stand in a phi.
  void number(const Value &V) {
    if (!V.use_empty() || isa<BasicBlock>(V))
      Numbers.try_emplace(&V, Next);
    ++Next;
  }
  void digits(const APInt &Bits) {
    for (unsigned Word = 0; Word < Bits.getNumWords(); ++Word)
      add(Bits.getRawData()[Word]);
  }

  void instruction(const Instruction &I) {
    add(I.getOpcode());
    add(Known.type(I.getType()));
    add(I.getRawSubclassOptionalData());
    state(I);
    add(I.getNumOperands());
    const auto *Call = dyn_cast<CallBase>(&I);
    const bool Ends = Call && Call->doesNotReturn();
    for (const Use &U : I.operands())
      // Numbers given to what never returns are lines of the source, as in assertions: they move with any edit above.
      if (Ends && isa<ConstantInt>(U.get()))
        add(Known.type(U.get()->getType()));
      else
        operand(*U.get(), 0);
  }

  /// What an instruction says beside its operands.
  void state(const Instruction &I) {
    if (const auto *Call = dyn_cast<CallBase>(&I)) {
      add(Call->getCallingConv());
      add(Known.type(Call->getFunctionType()));
      add(Known.attributes(Call->getAttributes()));
    } else if (const auto *Compare = dyn_cast<CmpInst>(&I)) {
      add(Compare->getPredicate());
    } else if (const auto *Address = dyn_cast<GetElementPtrInst>(&I)) {
      add(Known.type(Address->getSourceElementType()));
    } else if (const auto *Slot = dyn_cast<AllocaInst>(&I)) {
      add(Known.type(Slot->getAllocatedType()));
      add(Slot->getAlign().value());
    } else if (const auto *Load = dyn_cast<LoadInst>(&I)) {
      access(*Load);
    } else if (const auto *Store = dyn_cast<StoreInst>(&I)) {
      access(*Store);
    } else if (const auto *Phi = dyn_cast<PHINode>(&I)) {
      for (const BasicBlock *From : Phi->blocks())
        operand(*From, 0);
    } else if (const auto *Extract = dyn_cast<ExtractValueInst>(&I)) {
      for (unsigned Index : Extract->getIndices())
        add(Index);
    } else if (const auto *Insert = dyn_cast<InsertValueInst>(&I)) {
      for (unsigned Index : Insert->getIndices())
        add(Index);
    } else if (const auto *Shuffle = dyn_cast<ShuffleVectorInst>(&I)) {
      for (int Lane : Shuffle->getShuffleMask())
        add(uint64_t(Lane));
    } else if (const auto *Pad = dyn_cast<LandingPadInst>(&I)) {
      add(Pad->isCleanup());
    } else if (const auto *Modify = dyn_cast<AtomicRMWInst>(&I)) {
      add(Modify->getOperation());
      access(*Modify);
    } else if (const auto *Exchange = dyn_cast<AtomicCmpXchgInst>(&I)) {
      add(uint64_t(Exchange->getSuccessOrdering()));
      add(uint64_t(Exchange->getFailureOrdering()));
      add(Exchange->isVolatile() + 2 * Exchange->isWeak());
    } else if (const auto *Fence = dyn_cast<FenceInst>(&I)) {
      add(uint64_t(Fence->getOrdering()));
    }
  }

  template <typename T> void access(const T &I) {
    add(I.getAlign().value());
    add(I.isVolatile());
    add(uint64_t(I.getOrdering()));
  }

  void operand(const Value &V, unsigned Depth) {
    if (!isa<Constant>(V))
      if (auto Found = Numbers.find(&V); Found != Numbers.end()) {
        add(Found->second);
        return;
      }
    add(V.getValueID());
    if (const auto *Global = dyn_cast<GlobalValue>(&V)) {
      // Private names are numbered through the module, and what a string says may be a path.
      if (Global->hasPrivateLinkage())
        add(1);
      else
        add(xxh3_64bits(ownName(*Global)));
      return;
    }
    if (const auto *Asm = dyn_cast<InlineAsm>(&V)) {
      add(xxh3_64bits(Asm->getAsmString()));
      add(xxh3_64bits(Asm->getConstraintString()));
      return;
    }
    const auto *C = dyn_cast<Constant>(&V);
    if (!C)
      return;
    add(Known.type(C->getType()));
    if (const auto *Int = dyn_cast<ConstantInt>(C)) {
      digits(Int->getValue());
    } else if (const auto *Real = dyn_cast<ConstantFP>(C)) {
      digits(Real->getValueAPF().bitcastToAPInt());
    } else if (const auto *Data = dyn_cast<ConstantDataSequential>(C)) {
      add(xxh3_64bits(Data->getRawDataValues()));
    } else {
      if (const auto *Expression = dyn_cast<ConstantExpr>(C)) {
        add(Expression->getOpcode());
        add(Expression->getRawSubclassOptionalData());
        if (const auto *Address = dyn_cast<GEPOperator>(C))
          add(Known.type(Address->getSourceElementType()));
      }
      if (Depth < DeepestConstant)
        for (const Use &U : C->operands())
          operand(*U.get(), Depth + 1);
    }
  }

  TypeHashes &Known;
  uint64_t State = 0;
  DenseMap<const Value *, uint64_t> Numbers; // but of what has no use
  uint64_t Next = 0;
};

} // namespace

uint64_t hashBody(const Function &F, TypeHashes &Known) { return BodyHash(F, Known).value(); }

} // namespace mlgokit
