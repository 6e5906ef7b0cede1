#include "identity/Identity.h"

#include "identity/InstructionState.h"
#include "majors/ModuleAssembly.h"
#include "shared/ByteWriter.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/SHA256.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <vector>

using namespace llvm;

namespace mlgokit {

namespace {

/// How far a difference in one definition is seen in the identity of those that refer to it.
constexpr unsigned Rounds = 4;

Digest digestOf(const ByteWriter &Fields) {
  const std::array<uint8_t, 32> Full = SHA256::hash(Fields.bytes());
  Digest Short;
  std::copy_n(Full.begin(), Short.size(), Short.begin());
  return Short;
}

/// What types and attribute lists are, computed once for each of a module.
class Context {
public:
  Digest type(Type *T) {
    if (auto Found = Types.find(T); Found != Types.end())
      return Found->second;
    ByteWriter S;
    addTypeState(S, T);
    for (Type *Part : T->subtypes())
      S.add(type(Part));
    return Types[T] = digestOf(S);
  }

  Digest attributes(AttributeList List) {
    if (auto Found = Lists.find(List.getRawPointer()); Found != Lists.end())
      return Found->second;
    ByteWriter S;
    for (unsigned Index : List.indexes()) {
      if (!List.hasAttributesAtIndex(Index))
        continue;
      S.add(uint64_t(Index));
      addSet(S, List.getAttributes(Index));
    }
    return Lists[List.getRawPointer()] = digestOf(S);
  }

  void addSet(ByteWriter &S, AttributeSet Set) {
    S.add(uint64_t(Set.getNumAttributes()));
    for (Attribute A : Set)
      if (A.isTypeAttribute()) {
        // Its text would have the name of the type.
        S.add(Attribute::getNameFromAttrKind(A.getKindAsEnum()));
        if (Type *T = A.getValueAsType())
          S.add(type(T));
      } else {
        S.add(StringRef(A.getAsString()));
      }
  }

private:
  DenseMap<Type *, Digest> Types;
  DenseMap<void *, Digest> Lists;
};

/// One definition: what it is by itself, and which other definitions it refers to, in order.
struct Definition {
  Digest Own;
  std::vector<const GlobalValue *> References;
};

class Describer {
public:
  Describer(Context &Shared) : Shared(Shared) {}

  Definition describe(const GlobalValue &G) {
    S.add(uint64_t(G.getValueID()));
    S.add(Shared.type(G.getValueType()));
    S.add(uint64_t(G.getLinkage()));
    S.add(uint64_t(G.getVisibility()));
    S.add(uint64_t(G.getUnnamedAddr()));
    S.add(uint64_t(G.getDLLStorageClass()));
    S.add(uint64_t(G.getThreadLocalMode()));
    S.add(uint64_t(G.getAddressSpace()));
    if (auto *Object = dyn_cast<GlobalObject>(&G); Object && !isa<GlobalIFunc>(Object)) {
      const auto *Variable = dyn_cast<GlobalVariable>(Object);
      const MaybeAlign Alignment = Variable ? Variable->getAlign() : cast<Function>(Object)->getAlign();
      S.add(Alignment ? Alignment->value() : 0);
      S.add(Object->getSection());
      const Comdat *C = Object->getComdat();
      S.add(uint64_t(C ? 1 + C->getSelectionKind() : 0));
    }
    if (auto *F = dyn_cast<Function>(&G))
      addFunction(*F);
    else if (auto *Variable = dyn_cast<GlobalVariable>(&G))
      addVariable(*Variable);
    else
      for (const Use &Part : G.operands())
        addValue(Part);
    return {digestOf(S), std::move(References)};
  }

  // What addState() calls.
  void add(uint64_t Value) { S.add(Value); }
  void add(StringRef Text) { S.add(Text); }
  void addType(Type *T) { S.add(Shared.type(T)); }
  void addAttributes(AttributeList List) { S.add(Shared.attributes(List)); }

  /// A value that was seen before is its number: arguments, blocks, instructions, and constants after the first time.
  void addValue(const Value *V) {
    if (auto Found = Numbers.find(V); Found != Numbers.end()) {
      S.add(uint64_t(1));
      S.add(uint64_t(Found->second));
      return;
    }
    if (auto *Wrapped = dyn_cast<MetadataAsValue>(V))
      return addMetadata(*Wrapped->getMetadata());
    if (auto *Assembly = dyn_cast<InlineAsm>(V)) {
      S.add(uint64_t(2));
      S.add(StringRef(Assembly->getAsmString()));
      S.add(StringRef(Assembly->getConstraintString()));
      S.add(uint64_t(Assembly->hasSideEffects() + 2 * Assembly->isAlignStack() + 4 * Assembly->canThrow()));
      S.add(uint64_t(Assembly->getDialect()));
      return;
    }
    number(*V);
    if (auto *G = dyn_cast<GlobalValue>(V))
      return addReference(*G);
    if (auto *C = dyn_cast<Constant>(V))
      return addConstant(*C);
    S.add(uint64_t(3));
  }

private:
  void addVariable(const GlobalVariable &Variable) {
    S.add(uint64_t(Variable.isConstant() + 2 * Variable.isExternallyInitialized()));
    Shared.addSet(S, Variable.getAttributes());
    addValue(Variable.getInitializer());
  }

  void addFunction(const Function &F) {
    S.add(uint64_t(F.getCallingConv()));
    S.add(Shared.attributes(F.getAttributes()));
    S.add(StringRef(F.hasGC() ? F.getGC() : ""));
    for (const Use &Part : F.operands())
      addValue(Part);
    for (const Argument &A : F.args())
      number(A);
    for (const BasicBlock &Block : F) {
      number(Block);
      for (const Instruction &I : Block)
        if (!isa<DbgInfoIntrinsic>(I))
          number(I);
    }
    for (const BasicBlock &Block : F) {
      S.add(uint64_t(1000));
      for (const Instruction &I : Block)
        if (!isa<DbgInfoIntrinsic>(I))
          addInstruction(I);
    }
  }

  void number(const Value &V) { Numbers.try_emplace(&V, Numbers.size()); }

  void addInstruction(const Instruction &I) {
    S.add(uint64_t(I.getOpcode()));
    S.add(Shared.type(I.getType()));
    S.add(uint64_t(I.getRawSubclassOptionalData()));
    mlgokit::addState(*this, I);
    S.add(uint64_t(I.getNumOperands()));
    for (const Use &Operand : I.operands())
      addValue(Operand);
  }

  void addMetadata(const Metadata &M) {
    S.add(uint64_t(4));
    if (auto *Text = dyn_cast<MDString>(&M))
      S.add(Text->getString());
    else if (auto *Wrapped = dyn_cast<ValueAsMetadata>(&M))
      addValue(Wrapped->getValue());
  }

  void addReference(const GlobalValue &G) {
    if (!G.isDeclaration()) {
      S.add(uint64_t(5));
      References.push_back(&G);
      return;
    }
    S.add(uint64_t(6));
    S.add(Shared.type(G.getValueType()));
    auto *F = dyn_cast<Function>(&G);
    if (!F) {
      S.add(G.getName());
      return;
    }
    // An overloaded intrinsic has the names of types in its own.
    S.add(F->isIntrinsic() ? StringRef(Intrinsic::getBaseName(F->getIntrinsicID())) : F->getName());
    S.add(Shared.attributes(F->getAttributes()));
  }

  void addConstant(const Constant &C) {
    S.add(uint64_t(7));
    S.add(uint64_t(C.getValueID()));
    S.add(Shared.type(C.getType()));
    if (addNumber(S, C))
      return;
    if (auto *Address = dyn_cast<BlockAddress>(&C)) {
      const Function &F = *Address->getFunction();
      addValue(&F);
      uint64_t Position = 0;
      for (const BasicBlock &Block : F) {
        if (&Block == Address->getBasicBlock())
          break;
        ++Position;
      }
      S.add(Position);
    } else {
      if (auto *Expression = dyn_cast<ConstantExpr>(&C)) {
        S.add(uint64_t(Expression->getOpcode()));
        S.add(uint64_t(Expression->getRawSubclassOptionalData()));
        if (auto *Element = dyn_cast<GEPOperator>(Expression))
          S.add(Shared.type(Element->getSourceElementType()));
      }
      S.add(uint64_t(C.getNumOperands()));
      for (const Use &Operand : C.operands())
        addValue(Operand);
    }
  }

  Context &Shared;
  ByteWriter S;
  DenseMap<const Value *, uint64_t> Numbers;
  std::vector<const GlobalValue *> References;
};

/// __FILE__: the string that says where the source lies.
bool isSourcePath(const GlobalValue &G) {
  auto *Variable = dyn_cast<GlobalVariable>(&G);
  if (!Variable || !Variable->hasLocalLinkage() || !Variable->hasInitializer())
    return false;
  auto *Data = dyn_cast<ConstantDataArray>(Variable->getInitializer());
  return Data && Data->isCString() && Data->getAsCString() == G.getParent()->getSourceFileName();
}

/// Module flags that say how debug information is written.
bool isAboutDebugging(StringRef Flag) {
  return Flag == "Debug Info Version" || Flag == "Dwarf Version" || Flag == "DWARF64" || Flag == "CodeView" ||
         Flag == "CodeViewGHash";
}

void addFlags(ByteWriter &S, const Module &M) {
  SmallVector<Module::ModuleFlagEntry, 8> Flags;
  M.getModuleFlagsMetadata(Flags);
  for (const Module::ModuleFlagEntry &Flag : Flags) {
    if (isAboutDebugging(Flag.Key->getString()))
      continue;
    S.add(Flag.Key->getString());
    S.add(uint64_t(Flag.Behavior));
    if (auto *Number = mdconst::dyn_extract_or_null<ConstantInt>(Flag.Val))
      S.add(Number->getValue());
    else if (auto *Text = dyn_cast_or_null<MDString>(Flag.Val))
      S.add(Text->getString());
  }
}

} // namespace

std::string toHex(const Digest &D) { return llvm::toHex(ArrayRef<uint8_t>(D.data(), D.size()), true); }

Identity identify(const Module &M) {
  Context Shared;
  std::vector<std::pair<const GlobalValue *, Definition>> Definitions;
  for (const GlobalValue &G : M.global_values()) {
    if (G.isDeclaration())
      continue;
    if (isSourcePath(G)) {
      ByteWriter S;
      S.add(StringRef("source path"));
      Definitions.emplace_back(&G, Definition{digestOf(S), {}});
    } else {
      Definitions.emplace_back(&G, Describer(Shared).describe(G));
    }
  }
  // References are replaced by what they refer to, a step further each time, so that names are never needed.
  Identity Result;
  for (auto &[G, D] : Definitions)
    Result.Definitions[G] = D.Own;
  for (unsigned Round = 0; Round < Rounds; ++Round) {
    DenseMap<const GlobalValue *, Digest> Next;
    for (auto &[G, D] : Definitions) {
      ByteWriter S;
      S.add(D.Own);
      for (const GlobalValue *Reference : D.References)
        S.add(Result.Definitions.lookup(Reference));
      Next[G] = digestOf(S);
    }
    Result.Definitions = std::move(Next);
  }
  std::vector<Digest> Sorted;
  for (auto &[G, D] : Definitions)
    Sorted.push_back(Result.Definitions.lookup(G));
  std::sort(Sorted.begin(), Sorted.end());
  ByteWriter S;
  S.add(StringRef(M.getDataLayoutStr()));
  S.add(StringRef(Triple(M.getTargetTriple()).str()));
  forEachAssemblyText(M, [&](StringRef Text) { S.add(Text); });
  addFlags(S, M);
  for (const Digest &D : Sorted)
    S.add(D);
  Result.Module = digestOf(S);
  return Result;
}

} // namespace mlgokit
