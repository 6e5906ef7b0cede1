#include "identity/FinalCode.h"

#include "identity/InstructionState.h"
#include "identity/SiteMark.h"
#include "shared/ByteWriter.h"

#include "llvm/IR/Constants.h"
#include "llvm/IR/GlobalAlias.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/BLAKE3.h"

using namespace llvm;

namespace mlgokit {

namespace {

enum Tag : uint64_t { Seen, Other, Assembly, Global, Plain, Text, Wrapped, Node, NoValue, Block };

/// Writes one function, or one constant, as bytes that only the same one gives.
class Writer {
public:
  /// \p Ignored is a kind of metadata; of variables, contents count if \p Deep.
  explicit Writer(FinalCode &Shared, unsigned Ignored = 0, bool Deep = false)
      : Shared(Shared), Ignored(Ignored), Deep(Deep) {}

  template <typename T> void add(const T &Field) { Fields.add(Field); }
  void addType(Type *T) { add(Shared.type(T)); }
  void addAttributes(AttributeList List) { add(Shared.attributes(List)); }

  Digest digest() const {
    TruncatedBLAKE3<sizeof(Digest)> Hash;
    Hash.update(Fields.bytes());
    return Hash.result();
  }

  void addFunction(const Function &F) {
    add(Shared.global(F));
    add(uint64_t(F.hasComdat()));
    add(StringRef(F.hasComdat() ? F.getComdat()->getName() : ""));
    addAttachments(F);
    for (const Use &Part : F.operands())
      addValue(Part);
    for (const Argument &A : F.args())
      number(A);
    for (const BasicBlock &B : F) {
      number(B);
      for (const Instruction &I : B)
        number(I);
    }
    for (const BasicBlock &B : F) {
      add(uint64_t(Block));
      for (const Instruction &I : B)
        addInstruction(I);
    }
    for (const Argument &A : F.args())
      addUses(A);
    for (const BasicBlock &B : F) {
      addUses(B);
      for (const Instruction &I : B)
        addUses(I);
    }
  }

  void addValue(const Value *V) {
    if (!V)
      return add(uint64_t(NoValue));
    if (auto Found = Numbers.find(V); Found != Numbers.end()) {
      add(uint64_t(Seen));
      return add(uint64_t(Found->second));
    }
    if (auto *M = dyn_cast<MetadataAsValue>(V))
      return addMetadata(M->getMetadata());
    number(*V);
    if (auto *A = dyn_cast<InlineAsm>(V)) {
      add(uint64_t(Assembly));
      add(StringRef(A->getAsmString()));
      add(StringRef(A->getConstraintString()));
      add(uint64_t(A->hasSideEffects() + 2 * A->isAlignStack() + 4 * A->canThrow() + 8 * A->getDialect()));
    } else if (auto *G = dyn_cast<GlobalValue>(V)) {
      add(uint64_t(Global));
      add(Shared.global(*G));
      if (Deep)
        add(Shared.contents(*G));
    } else if (auto *C = dyn_cast<Constant>(V)) {
      addConstant(*C);
    } else {
      add(uint64_t(Other));
    }
  }

private:
  void number(const Value &V) { Numbers.try_emplace(&V, unsigned(Numbers.size())); }

  void addInstruction(const Instruction &I) {
    add(uint64_t(I.getOpcode()));
    addType(I.getType());
    add(uint64_t(I.getRawSubclassOptionalData()));
    addState(*this, I);
    add(uint64_t(I.getNumOperands()));
    for (const Use &Operand : I.operands())
      addValue(Operand);
    if (I.hasMetadataOtherThanDebugLoc()) {
      SmallVector<std::pair<unsigned, MDNode *>, 4> Found;
      I.getAllMetadataOtherThanDebugLoc(Found);
      addAttachments(Found);
    }
  }

  void addAttachments(const GlobalObject &G) {
    SmallVector<std::pair<unsigned, MDNode *>, 4> Found;
    G.getAllMetadata(Found);
    addAttachments(Found);
  }

  void addAttachments(ArrayRef<std::pair<unsigned, MDNode *>> Found) {
    for (auto [Kind, Attached] : Found) {
      if (Kind == Ignored || Kind == LLVMContext::MD_dbg)
        continue;
      add(uint64_t(Kind));
      addMetadata(Attached);
    }
  }

  void addMetadata(const Metadata *M) {
    if (!M)
      return add(uint64_t(NoValue));
    if (auto *String = dyn_cast<MDString>(M)) {
      add(uint64_t(Text));
      return add(String->getString());
    }
    if (auto *Value = dyn_cast<ValueAsMetadata>(M)) {
      add(uint64_t(Wrapped));
      return addValue(Value->getValue());
    }
    auto [Found, Fresh] = Nodes.try_emplace(M, unsigned(Nodes.size()));
    add(uint64_t(Fresh ? Node : Seen));
    add(uint64_t(Found->second));
    auto *Parent = dyn_cast<MDNode>(M);
    if (!Fresh || !Parent)
      return;
    add(uint64_t(M->getMetadataID()));
    add(uint64_t(Parent->isDistinct()));
    add(uint64_t(Parent->getNumOperands()));
    for (const MDOperand &Operand : Parent->operands())
      addMetadata(Operand);
  }

  void addConstant(const Constant &C) {
    add(uint64_t(Plain));
    add(uint64_t(C.getValueID()));
    addType(C.getType());
    if (addNumber(*this, C))
      return;
    if (auto *Expression = dyn_cast<ConstantExpr>(&C)) {
      add(uint64_t(Expression->getOpcode()));
      add(uint64_t(Expression->getRawSubclassOptionalData()));
      if (auto *Element = dyn_cast<GEPOperator>(Expression))
        addType(Element->getSourceElementType());
    }
    add(uint64_t(C.getNumOperands()));
    for (const Use &Operand : C.operands())
      addValue(Operand);
  }

  void addUses(const Value &V) {
    if (V.use_empty() || V.hasOneUse())
      return;
    for (const Use &U : V.uses()) {
      auto Found = Numbers.find(U.getUser());
      add(Found == Numbers.end() ? 0 : 1 + uint64_t(Found->second));
      add(uint64_t(U.getOperandNo()));
    }
  }

  FinalCode &Shared;
  const unsigned Ignored;
  const bool Deep;
  ByteWriter Fields;
  DenseMap<const Value *, unsigned> Numbers;
  DenseMap<const Metadata *, unsigned> Nodes;
};

} // namespace

const GlobalVariable *returnedVariable(const Function &F) {
  const GlobalVariable *Found = nullptr;
  if (!F.getReturnType()->isPointerTy())
    return nullptr;
  for (const BasicBlock &B : F)
    if (auto *Return = dyn_cast<ReturnInst>(B.getTerminator())) {
      auto *Value = dyn_cast<GlobalVariable>(Return->getReturnValue());
      if (!Value || (Found && Found != Value))
        return nullptr;
      Found = Value;
    }
  return Found;
}

Digest FinalCode::of(const Function &F) {
  Writer Out(*this, siteMarkKind(M.getContext()), /*Deep=*/true);
  Out.addFunction(F);
  return Out.digest();
}

Digest FinalCode::type(Type *T) {
  if (auto Found = Types.find(T); Found != Types.end())
    return Found->second;
  Writer Out(*this);
  addTypeState(Out, T);
  for (Type *Part : T->subtypes())
    Out.add(type(Part));
  return Types[T] = Out.digest();
}

Digest FinalCode::attributes(AttributeList List) {
  if (auto Found = Lists.find(List.getRawPointer()); Found != Lists.end())
    return Found->second;
  Writer Out(*this);
  for (unsigned Index : List.indexes())
    if (List.hasAttributesAtIndex(Index)) {
      Out.add(uint64_t(Index));
      Out.add(StringRef(List.getAsString(Index)));
    }
  return Lists[List.getRawPointer()] = Out.digest();
}

Digest FinalCode::global(const GlobalValue &G) {
  if (auto Found = Globals.find(&G); Found != Globals.end())
    return Found->second;
  Writer Out(*this);
  // The names that passes give to private tables depend on how many they made before.
  Out.add(G.hasPrivateLinkage() ? StringRef() : G.getName());
  Out.add(uint64_t(G.getValueID()));
  Out.add(type(G.getValueType()));
  for (unsigned Part :
       {unsigned(G.getLinkage()), unsigned(G.getVisibility()), unsigned(G.getUnnamedAddr()), unsigned(G.isDSOLocal()),
        unsigned(G.getThreadLocalMode()), unsigned(G.getAddressSpace()), unsigned(G.isDeclaration())})
    Out.add(uint64_t(Part));
  if (auto *Object = dyn_cast<GlobalObject>(&G); Object && Object->hasSection())
    Out.add(Object->getSection());
  if (auto *F = dyn_cast<Function>(&G)) {
    Out.add(uint64_t(F->getCallingConv()));
    Out.add(uint64_t(F->getAlign() ? F->getAlign()->value() : 0));
    Out.add(attributes(F->getAttributes()));
    Out.add(StringRef(F->hasGC() ? F->getGC() : ""));
    Out.addValue(returnedVariable(*F));
  } else if (auto *Variable = dyn_cast<GlobalVariable>(&G)) {
    Out.add(uint64_t(Variable->getAlign() ? Variable->getAlign()->value() : 0));
    Out.add(uint64_t(Variable->isConstant() + 2 * Variable->isExternallyInitialized()));
    Out.add(StringRef(Variable->getAttributes().getAsString()));
  }
  return Globals[&G] = Out.digest();
}

Digest FinalCode::contents(const GlobalValue &G) {
  // Code generation may read a constant instead of referring to it.
  auto *Variable = dyn_cast<GlobalVariable>(&G);
  if (!Variable || !Variable->isConstant() || !Variable->hasInitializer())
    return Digest{};
  if (auto Found = Contents.find(&G); Found != Contents.end())
    return Found->second;
  Writer Out(*this);
  Out.addValue(Variable->getInitializer());
  return Contents[&G] = Out.digest();
}

} // namespace mlgokit
