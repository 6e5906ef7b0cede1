#include "inliner/SiteKeys.h"

#include "identity/BodyHash.h"
#include "identity/SiteMark.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Metadata.h"
#include "llvm/IR/ValueMap.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Whether a call has a place of its own: intrinsics come and go with options, as debug information does.
CallBase *markable(Instruction &I) { return isa<IntrinsicInst>(I) ? nullptr : dyn_cast<CallBase>(&I); }
const CallBase *markable(const Instruction &I) { return isa<IntrinsicInst>(I) ? nullptr : dyn_cast<CallBase>(&I); }

uint64_t keyOf(uint64_t Caller, uint64_t Path, uint64_t Callee, uint64_t Before) {
  return mix(mix(mix(Caller, Path), Callee), Before) & ~uint64_t(1);
}

} // namespace

std::vector<uint64_t> writtenKeys(const Module &M) {
  TypeHashes Known;
  DenseMap<const Function *, uint64_t> Bodies;
  for (const Function &F : M)
    if (!F.isDeclaration())
      Bodies[&F] = hashBody(F, Known);
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

struct SiteKeys::Memory {
  TypeHashes Known;
  // They forget a function that is deleted, whose address may come again.
  ValueMap<const Function *, uint64_t> Bodies;
  ValueMap<const Function *, uint64_t> Histories; // the body with all that was inlined into it, in order
};

SiteKeys::SiteKeys(Module &M) : Kind(siteMarkKind(M.getContext())), Kept(std::make_unique<Memory>()) {
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
  return Kept->Bodies[&F] = hashBody(F, Kept->Known);
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

} // namespace mlgokit
