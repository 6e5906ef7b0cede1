// What a type, a constant or an instruction says beside what it is made of.
#ifndef MLGOKIT_IDENTITY_INSTRUCTIONSTATE_H
#define MLGOKIT_IDENTITY_INSTRUCTIONSTATE_H

#include "llvm/IR/Constants.h"
#include "llvm/IR/DerivedTypes.h"
#include "llvm/IR/Instructions.h"

namespace mlgokit {

/// \p Out has add() for numbers and strings. Of what a type is made it has how many there are.
template <typename Sink> void addTypeState(Sink &Out, llvm::Type *T) {
  using namespace llvm;
  Out.add(uint64_t(T->getTypeID()));
  if (auto *Integer = dyn_cast<IntegerType>(T))
    Out.add(uint64_t(Integer->getBitWidth()));
  else if (auto *Pointer = dyn_cast<PointerType>(T))
    Out.add(uint64_t(Pointer->getAddressSpace()));
  else if (auto *Array = dyn_cast<ArrayType>(T))
    Out.add(uint64_t(Array->getNumElements()));
  else if (auto *Vector = dyn_cast<VectorType>(T))
    Out.add(uint64_t(Vector->getElementCount().getKnownMinValue()));
  else if (auto *Struct = dyn_cast<StructType>(T))
    Out.add(uint64_t(Struct->isPacked() + 2 * Struct->isOpaque()));
  else if (auto *Signature = dyn_cast<FunctionType>(T))
    Out.add(uint64_t(Signature->isVarArg()));
  else if (auto *Target = dyn_cast<TargetExtType>(T)) {
    Out.add(Target->getName());
    for (unsigned Parameter : Target->int_params())
      Out.add(uint64_t(Parameter));
  }
  Out.add(uint64_t(T->getNumContainedTypes()));
}

/// Whether \p C is a number, or a sequence of them; \p Out has them then.
template <typename Sink> bool addNumber(Sink &Out, const llvm::Constant &C) {
  using namespace llvm;
  if (auto *Integer = dyn_cast<ConstantInt>(&C))
    Out.add(Integer->getValue());
  else if (auto *Real = dyn_cast<ConstantFP>(&C))
    Out.add(Real->getValueAPF().bitcastToAPInt());
  else if (auto *Data = dyn_cast<ConstantDataSequential>(&C))
    Out.add(Data->getRawDataValues());
  else
    return false;
  return true;
}

template <typename Sink> void addIndices(Sink &Out, llvm::ArrayRef<unsigned> Indices) {
  Out.add(uint64_t(Indices.size()));
  for (unsigned Index : Indices)
    Out.add(uint64_t(Index));
}

template <typename Sink, typename T> void addAccess(Sink &Out, const T &I) {
  Out.add(uint64_t(I.getAlign().value()));
  Out.add(uint64_t(I.isVolatile()));
  Out.add(uint64_t(I.getOrdering()));
  Out.add(uint64_t(I.getSyncScopeID()));
}

/// \p Out has add() for numbers and strings, addType(), addAttributes() and addValue().
template <typename Sink> void addState(Sink &Out, const llvm::Instruction &I) {
  using namespace llvm;
  if (auto *Call = dyn_cast<CallBase>(&I)) {
    Out.add(uint64_t(Call->getCallingConv()));
    Out.addType(Call->getFunctionType());
    Out.addAttributes(Call->getAttributes());
    if (auto *Plain = dyn_cast<CallInst>(Call))
      Out.add(uint64_t(Plain->getTailCallKind()));
    for (unsigned Bundle = 0; Bundle < Call->getNumOperandBundles(); ++Bundle) {
      Out.add(Call->getOperandBundleAt(Bundle).getTagName());
      Out.add(uint64_t(Call->getOperandBundleAt(Bundle).Inputs.size()));
    }
  } else if (auto *Alloca = dyn_cast<AllocaInst>(&I)) {
    Out.addType(Alloca->getAllocatedType());
    Out.add(uint64_t(Alloca->getAlign().value()));
    Out.add(uint64_t(Alloca->isUsedWithInAlloca() + 2 * Alloca->isSwiftError()));
  } else if (auto *Load = dyn_cast<LoadInst>(&I)) {
    addAccess(Out, *Load);
  } else if (auto *Store = dyn_cast<StoreInst>(&I)) {
    addAccess(Out, *Store);
  } else if (auto *Element = dyn_cast<GetElementPtrInst>(&I)) {
    Out.addType(Element->getSourceElementType());
  } else if (auto *Compare = dyn_cast<CmpInst>(&I)) {
    Out.add(uint64_t(Compare->getPredicate()));
  } else if (auto *Phi = dyn_cast<PHINode>(&I)) {
    for (const BasicBlock *Block : Phi->blocks())
      Out.addValue(Block);
  } else if (auto *Extract = dyn_cast<ExtractValueInst>(&I)) {
    addIndices(Out, Extract->getIndices());
  } else if (auto *Insert = dyn_cast<InsertValueInst>(&I)) {
    addIndices(Out, Insert->getIndices());
  } else if (auto *Shuffle = dyn_cast<ShuffleVectorInst>(&I)) {
    for (int Lane : Shuffle->getShuffleMask())
      Out.add(uint64_t(Lane + 1));
  } else if (auto *Pad = dyn_cast<LandingPadInst>(&I)) {
    Out.add(uint64_t(Pad->isCleanup()));
  } else if (auto *Modify = dyn_cast<AtomicRMWInst>(&I)) {
    Out.add(uint64_t(Modify->getOperation()));
    Out.add(uint64_t(Modify->getOrdering()));
    Out.add(uint64_t(Modify->getAlign().value()));
    Out.add(uint64_t(Modify->isVolatile() + 2 * Modify->getSyncScopeID()));
  } else if (auto *Exchange = dyn_cast<AtomicCmpXchgInst>(&I)) {
    Out.add(uint64_t(Exchange->getSuccessOrdering()));
    Out.add(uint64_t(Exchange->getFailureOrdering()));
    Out.add(uint64_t(Exchange->getAlign().value()));
    Out.add(uint64_t(Exchange->isVolatile() + 2 * Exchange->isWeak() + 4 * Exchange->getSyncScopeID()));
  } else if (auto *Fence = dyn_cast<FenceInst>(&I)) {
    Out.add(uint64_t(Fence->getOrdering()));
    Out.add(uint64_t(Fence->getSyncScopeID()));
  }
}

} // namespace mlgokit

#endif
