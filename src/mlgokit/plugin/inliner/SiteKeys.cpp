#include "inliner/SiteKeys.h"

#include "inliner/Features.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Operator.h"
#include "llvm/IR/ValueMap.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/xxhash.h"

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

/// What types and attribute lists are, computed once for each of a module.
class Shapes {
public:
  uint64_t type(Type *T) {
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

  /// Without attributes that are strings: they say what the command line was, as in "frame-pointer".
  uint64_t attributes(AttributeList List) {
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

private:
  DenseMap<Type *, uint64_t> Types;
  DenseMap<void *, uint64_t> Lists;
};

/// Hashes one body; values are known by the order in which they stand.
class BodyHash {
public:
  BodyHash(const Function &F, Shapes &Known) : Known(Known) {
    add(xxh3_64bits(F.getName()));
    add(Known.type(F.getFunctionType()));
    add(Known.attributes(F.getAttributes()));
    add(F.getCallingConv());
    add(F.getLinkage() + 64 * F.hasComdat());
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
  void number(const Value &V) { Numbers.try_emplace(&V, Numbers.size()); }
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
        add(xxh3_64bits(Global->getName()));
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

  Shapes &Known;
  uint64_t State = 0;
  DenseMap<const Value *, uint64_t> Numbers;
};

/// Whether a call has a place of its own: intrinsics come and go with options, as debug information does.
CallBase *markable(Instruction &I) { return isa<IntrinsicInst>(I) ? nullptr : dyn_cast<CallBase>(&I); }
const CallBase *markable(const Instruction &I) { return isa<IntrinsicInst>(I) ? nullptr : dyn_cast<CallBase>(&I); }

uint64_t keyOf(uint64_t Caller, uint64_t Path, uint64_t Callee, uint64_t Before) {
  return mix(mix(mix(Caller, Path), Callee), Before) & ~uint64_t(1);
}

/// The keys of all calls as they were written, each asked for the first time.
std::vector<uint64_t> writtenKeys(const Module &M) {
  Shapes Known;
  DenseMap<const Function *, uint64_t> Bodies;
  for (const Function &F : M)
    if (!F.isDeclaration())
      Bodies[&F] = BodyHash(F, Known).value();
  std::vector<uint64_t> Keys;
  for (const auto &[F, Body] : Bodies) {
    uint64_t Place = 0;
    for (const BasicBlock &B : *F)
      for (const Instruction &I : B)
        if (const CallBase *Call = markable(I)) {
          const uint64_t Path = mix(Body, Place++);
          if (auto Callee = Bodies.find(Call->getCalledFunction()); Callee != Bodies.end())
            Keys.push_back(keyOf(Body, Path, Callee->second, 0));
        }
  }
  return Keys;
}

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("decision table " + Origin + ": " + What).str());
}

constexpr StringRef Magic("MLGODT2\n", 8);
constexpr uint32_t PlainFlag = 1;

} // namespace

struct SiteKeys::Memory {
  Shapes Known;
  // They forget a function that is deleted, whose address may come again.
  ValueMap<const Function *, uint64_t> Bodies;
  ValueMap<const Function *, uint64_t> Histories; // the body with all that was inlined into it, in order
};

unsigned SiteKeys::mark(LLVMContext &Context) { return Context.getMDKindID(MarkName); }

SiteKeys::SiteKeys(Module &M) : Kind(mark(M.getContext())), Kept(std::make_unique<Memory>()) {
  for (Function &F : M) {
    if (F.isDeclaration())
      continue;
    const uint64_t Body = bodyOf(F);
    uint64_t Place = 0;
    for (BasicBlock &B : F)
      for (Instruction &I : B)
        if (CallBase *Call = markable(I))
          mark(*Call, mix(Body, Place++));
  }
}

SiteKeys::~SiteKeys() = default;

uint64_t SiteKeys::bodyOf(const Function &F) {
  if (auto Found = Kept->Bodies.find(&F); Found != Kept->Bodies.end())
    return Found->second;
  return Kept->Bodies[&F] = BodyHash(F, Kept->Known).value();
}

uint64_t SiteKeys::historyOf(const Function &F) {
  if (auto Found = Kept->Histories.find(&F); Found != Kept->Histories.end())
    return Found->second;
  return bodyOf(F);
}

void SiteKeys::mark(CallBase &Call, uint64_t Path) {
  LLVMContext &Context = Call.getContext();
  auto *Number = ConstantInt::get(Type::getInt64Ty(Context), Path);
  Call.setMetadata(Kind, MDNode::get(Context, ConstantAsMetadata::get(Number)));
}

std::optional<uint64_t> SiteKeys::pathOf(const CallBase &Call) const {
  if (const MDNode *Mark = Call.getMetadata(Kind))
    return mdconst::extract<ConstantInt>(Mark->getOperand(0))->getZExtValue();
  return std::nullopt;
}

uint64_t SiteKeys::next(CallBase &Call) {
  const uint64_t Caller = bodyOf(*Call.getCaller()), Callee = bodyOf(*Call.getCalledFunction());
  std::optional<uint64_t> Path = pathOf(Call);
  if (!Path) {
    const uint64_t Among = mix(historyOf(*Call.getCaller()), Callee);
    Path = mix(Among, Asked[Among]++);
    mark(Call, *Path);
  }
  return keyOf(Caller, *Path, Callee, Asked[mix(mix(Caller, *Path), Callee)]++);
}

void SiteKeys::enter(const CallBase &Call) {
  const uint64_t Before = historyOf(*Call.getCaller()), Through = pathOf(Call).value_or(Before);
  Grows = Call.getCaller();
  Grown = mix(mix(Before, Through), historyOf(*Call.getCalledFunction()));
  for (BasicBlock &B : *Call.getCalledFunction())
    for (Instruction &I : B)
      if (CallBase *Inner = markable(I); Inner && Inner != &Call)
        if (const std::optional<uint64_t> Path = pathOf(*Inner)) {
          Entered.emplace_back(Inner, Inner->getMetadata(Kind));
          mark(*Inner, mix(Through, *Path));
        }
}

void SiteKeys::leave(bool Inlined, bool CalleeIsThere) {
  if (Inlined && Grows)
    Kept->Histories[Grows] = Grown;
  if (CalleeIsThere)
    for (auto [Call, Mark] : Entered)
      Call->setMetadata(Kind, Mark);
  Entered.clear();
  Grows = nullptr;
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
  // What the search found, for `mlgokit check`.
  if (!Room(4))
    return failure(Origin, "it is cut short");
  if (const uint32_t Length = Word(); Length != Bytes.size() - At)
    return failure(Origin, "it is not as long as it says");
  return Table;
}

const DecisionTable::Entry *DecisionTable::find(const Module &M) const {
  // Names that the linker knows say more than local ones, which many modules may have alike.
  for (const bool Local : {false, true}) {
    std::vector<uint32_t> Shared(Entries.size());
    for (const Function &F : M)
      if (!F.isDeclaration() && (Local ? F.hasLocalLinkage() : F.hasExternalLinkage()))
        if (auto Found = Owners.find(uint64_t(functionId(F))); Found != Owners.end())
          for (uint32_t I : Found->second)
            ++Shared[I];
    const auto Most = std::max_element(Shared.begin(), Shared.end());
    if (Most == Shared.end() || *Most == 0)
      continue;
    if (!Local && std::count(Shared.begin(), Shared.end(), *Most) == 1)
      return &Entries[Most - Shared.begin()];
    const Entry *Best = nullptr;
    size_t MostKnown = 0;
    const std::vector<uint64_t> Keys = writtenKeys(M);
    for (size_t I = 0; I < Entries.size(); ++I) {
      if (Shared[I] != *Most)
        continue;
      const size_t Known = count_if(Keys, [&](uint64_t Key) { return decision(Entries[I], Key).has_value(); });
      if ((!Best && !Local) || Known > MostKnown)
        Best = &Entries[I];
      MostKnown = std::max(MostKnown, Known);
    }
    if (Best)
      return Best;
  }
  return nullptr;
}

std::optional<bool> DecisionTable::decision(const Entry &E, uint64_t Key) {
  auto Found = std::lower_bound(E.Keys.begin(), E.Keys.end(), Key);
  if (!Key || Found == E.Keys.end() || (*Found & ~uint64_t(1)) != Key)
    return std::nullopt;
  return *Found & 1;
}

} // namespace mlgokit
