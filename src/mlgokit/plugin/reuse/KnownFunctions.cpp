#include "reuse/KnownFunctions.h"

#include "identity/FinalCode.h"
#include "reuse/Digests.h"
#include "shared/Emitted.h"
#include "shared/Executed.h"
#include "shared/LastPass.h"
#include "shared/Settings.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/bit.h"
#include "llvm/Analysis/TargetLibraryInfo.h"
#include "llvm/CodeGen/MachineConstantPool.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Triple.h"
#include "llvm/Transforms/Utils/ModuleUtils.h"

#include <cstdlib>
#include <memory>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

thread_local Module *Current = nullptr;

/// The list, between the last pass over the IR and code generation.
thread_local std::unique_ptr<raw_fd_ostream> Listed;

/// Whether the code of one function is made without a look at the others, and each can be a line of the list.
bool isSeparable(const Module &M) {
  const Triple Target(M.getTargetTriple());
  if (Target.getArch() != Triple::x86_64 || !Target.isOSBinFormatELF() || !M.getModuleInlineAsm().empty())
    return false;
  if (M.getNamedMetadata("llvm.dbg.cu"))
    return false;
  for (const char *Flag : {"cf-protection-branch", "cf-protection-return", "kcfi", "cfguard", "ehcontguard"})
    if (M.getModuleFlag(Flag))
      return false;
  if (any_of(M, [](const Function &F) { return F.getName().find_first_of("\r\n") != StringRef::npos; }))
    return false;
  for (StringRef Option : {"enable-ipra", "enable-machine-outliner", "enable-global-merge", "global-isel"})
    if (isGiven(Option))
      return false;
  return true;
}

class Choice {
public:
  explicit Choice(const Module &M) : Libraries(Triple(M.getTargetTriple())) {
    SmallVector<GlobalValue *, 8> Used;
    collectUsedGlobalVariables(M, Used, /*CompilerUsed=*/false);
    Needed.insert(Used.begin(), Used.end());
    for (const GlobalAlias &A : M.aliases())
      Needed.insert(A.getAliaseeObject());
    for (const GlobalIFunc &I : M.ifuncs())
      Needed.insert(I.getResolverFunction());
  }

  /// Whether \p F is all that its section group has, and leaves nothing in sections that it shares with others, but
  /// for constants, of which code generation tells.
  bool mayDrop(const Function &F) const {
    if (Needed.count(&F) || !F.hasName() || F.hasSection() || F.hasGC() || F.hasPrefixData() || F.hasPrologueData())
      return false;
    if (const Comdat *C = F.getComdat())
      if (C->getSelectionKind() != Comdat::Any || C->getUsers().size() != 1 || C->getName() != F.getName())
        return false;
    LibFunc Known;
    if (F.hasLocalLinkage() && Libraries.getLibFunc(F.getName(), Known))
      return false;
    for (const char *Name : {"patchable-function", "patchable-function-entry", "xray-instruction-threshold",
                             "function-instrument", "fentry-call", "instrument-function-entry-inlined", "split-stack"})
      if (F.hasFnAttribute(Name))
        return false;
    if (F.hasFnAttribute(Attribute::Naked))
      return false;
    for (const BasicBlock &B : F) {
      if (B.hasAddressTaken())
        return false;
      for (const Instruction &I : B)
        if (!isOrdinary(I))
          return false;
    }
    return true;
  }

private:
  static bool isOrdinary(const Instruction &I) {
    if (auto *Pad = dyn_cast<LandingPadInst>(&I)) {
      // Types that are caught are referred to by words that functions share. A filter that lets nothing through, as
      // Rust has them, names none.
      for (unsigned Clause = 0; Clause < Pad->getNumClauses(); ++Clause) {
        const Constant *Type = Pad->getClause(Clause);
        if (!isa<ConstantPointerNull>(Type) &&
            !(Pad->isFilter(Clause) && isa<ConstantAggregateZero>(Type) && Type->getType()->getArrayNumElements() == 0))
          return false;
      }
      return true;
    }
    auto *Call = dyn_cast<CallBase>(&I);
    if (!Call)
      return true;
    if (Call->isInlineAsm() || isa<CallBrInst>(Call))
      return false;
    switch (Call->getIntrinsicID()) {
    case Intrinsic::experimental_stackmap:
    case Intrinsic::experimental_patchpoint_void:
    case Intrinsic::experimental_gc_statepoint:
    case Intrinsic::experimental_deoptimize:
    case Intrinsic::pseudoprobe:
    case Intrinsic::localescape:
      return false;
    default:
      return true;
    }
  }

  SmallPtrSet<const GlobalValue *, 16> Needed;
  TargetLibraryInfoImpl Libraries;
};

/// What the code of a function has of constants in sections that all share, and what it executes.
void noteCode(raw_ostream &List, MachineFunction &MF) {
  // Of those that can be merged each has a section with all others of its size, where they follow one another.
  uint32_t Bytes = 0, Others = 0;
  for (const MachineConstantPoolEntry &Entry : MF.getConstantPool()->getConstants()) {
    const SectionKind Kind = Entry.getSectionKind(&MF.getDataLayout());
    const unsigned Size = Entry.getSizeInBytes(MF.getDataLayout());
    const bool Follows = Kind.isMergeableConst() && Entry.getAlign().value() <= Size;
    (Follows ? Bytes : Others) += Follows ? Size : 1;
  }
  List << "c " << format_hex_no_prefix(Bytes, 8) << format_hex_no_prefix(Others, 8)
       << format_hex_no_prefix(bit_cast<uint64_t>(executedInstructions(MF)), 16) << ' ' << MF.getName() << '\n';
  List.flush();
}

/// What is left is what a caller sees: a name that is bound as it was.
void drop(Function &F) {
  const bool Near = F.isDSOLocal();
  F.deleteBody();
  F.setComdat(nullptr);
  F.clearMetadata();
  F.setDSOLocal(Near);
}

using Functions = SmallSetVector<Function *, 16>;

/// Whether code that is generated calls \p F.
bool isCalledBeside(Function &F, const Functions &Dropped) {
  return any_of(F.users(), [&](User *U) {
    auto *Call = dyn_cast<CallBase>(U);
    return Call && Call->getCalledOperand() == &F && !Dropped.contains(Call->getFunction());
  });
}

/// Keeps the bodies that code of callers depends on which is generated.
void keepWhatCallersSee(Functions &Dropped) {
  for (bool Kept = true; std::exchange(Kept, false);)
    for (Function *F : Dropped.getArrayRef().vec())
      if (returnedVariable(*F) && isCalledBeside(*F, Dropped))
        Kept = Dropped.remove(F);
}

Error listAndDrop(Module &M, const char *Path) {
  Expected<StringSet<>> Known = readDigests("known functions", std::getenv("MLGOKIT_KNOWN"));
  if (!Known)
    return Known.takeError();
  std::error_code Code;
  auto List = std::make_unique<raw_fd_ostream>(Path, Code);
  raw_fd_ostream &Out = *List;
  if (Code)
    return createStringError(Code, std::string("list of functions ") + Path + ": " + Code.message());
  if (!isSeparable(M))
    return Error::success();
  const Choice Chosen(M);
  FinalCode Digests(M);
  SmallVector<std::pair<Function *, std::optional<Digest>>, 0> Found;
  Functions Dropped;
  for (Function &F : M) {
    if (F.isDeclarationForLinker())
      continue;
    Found.emplace_back(&F, std::nullopt);
    if (!Chosen.mayDrop(F))
      continue;
    const Digest D = Digests.of(F);
    Found.back().second = D;
    if (Known->contains(StringRef(reinterpret_cast<const char *>(D.data()), D.size())))
      Dropped.insert(&F);
  }
  keepWhatCallersSee(Dropped);
  for (auto &[F, D] : Found) {
    const char Kind = Dropped.contains(F) ? 'd' : !D ? 'k' : 'n';
    Out << Kind << ' ' << toHex(D.value_or(Digest{})) << ' ' << F->getName() << '\n';
  }
  for (Function *F : Dropped)
    drop(*F);
  Out.flush();
  if ((Code = Out.error())) {
    Out.clear_error();
    return createStringError(Code, std::string("list of functions ") + Path + ": " + Code.message());
  }
  Listed = std::move(List);
  return Error::success();
}

void end(Module &M) {
  if (Current != &M)
    return;
  Current = nullptr;
  if (const char *Path = std::getenv("MLGOKIT_FUNCTIONS"); Path && *Path)
    if (Error Failed = listAndDrop(M, Path))
      M.getContext().emitError("mlgokit: " + toString(std::move(Failed)));
}

struct EndOfLink : PassInfoMixin<EndOfLink> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    end(M);
    return PreservedAnalyses::none();
  }
  static bool isRequired() { return true; }
};

} // namespace

void enterInliner(Module &M) { Current = &M; }

bool isListed() { return Listed != nullptr; }

void enterCodeGeneration(Module &M) {
  if (Listed)
    whenEmitted(M.getContext(), [List = std::shared_ptr<raw_fd_ostream>(std::move(Listed))](MachineFunction &MF) {
      noteCode(*List, MF);
    });
}

void registerKnownFunctions(PassBuilder &Builder) {
  // A module without an inliner does not name itself, and the one before may be gone.
  Current = nullptr;
  PassInstrumentationCallbacks *Callbacks = Builder.getPassInstrumentationCallbacks();
  // A resident compiler learns only with a request whether it is wanted.
  if (!Callbacks || !(std::getenv("MLGOKIT_FUNCTIONS") || std::getenv("MLGOKIT_RESIDENT")))
    return;
  Callbacks->registerAfterPassCallback([](StringRef Pass, Any, const PreservedAnalyses &) {
    if (Pass == LastPass && Current)
      end(*Current);
  });
  Builder.registerFullLinkTimeOptimizationLastEPCallback(
      [](ModulePassManager &Passes, OptimizationLevel) { Passes.addPass(EndOfLink()); });
}

} // namespace mlgokit
