#include "inliner/Features.h"

#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/Support/MD5.h"

using namespace llvm;

namespace mlgokit {

namespace {

// Functions with thousands of uses exist; past this many the exact number says nothing more.
constexpr int64_t MostUses = 64;

bool isStandardLibrary(StringRef Name) {
  return Name.starts_with("_ZSt") || Name.starts_with("_ZNSt") || Name.starts_with("_ZNKSt") ||
         Name.starts_with("_ZNSa") || Name.starts_with("_ZNSs") || Name.starts_with("_ZN9__gnu_cxx") ||
         Name.starts_with("_ZNK9__gnu_cxx");
}

bool isStackAddress(const Value *V) { return isa<AllocaInst>(V->stripInBoundsOffsets()); }

} // namespace

bool isDiscardable(const Function &F) { return !F.hasLocalLinkage() && F.isDiscardableIfUnused(); }

int64_t functionId(const Function &F) { return int64_t(MD5Hash(F.getName())); }

const BodySummary &CallSiteObserver::summarise(const Function &F, int64_t Instructions) {
  BodySummary &S = Bodies[&F];
  if (S.Instructions == Instructions)
    return S;
  S = BodySummary();
  S.Instructions = Instructions;
  for (const BasicBlock &Block : F) {
    for (const Instruction &I : Block) {
      switch (I.getOpcode()) {
      case Instruction::Invoke:
        ++S.Invokes;
        [[fallthrough]];
      case Instruction::Call:
      case Instruction::CallBr: {
        if (isa<IntrinsicInst>(I))
          break;
        const Function *Called = cast<CallBase>(I).getCalledFunction();
        if (!Called)
          ++S.IndirectCalls;
        else if (Called->isDeclaration())
          ++S.DeclaredCalls;
        break;
      }
      case Instruction::LandingPad:
        ++S.LandingPads;
        break;
      case Instruction::Switch:
        ++S.Switches;
        break;
      case Instruction::Ret:
        ++S.Returns;
        break;
      case Instruction::Unreachable:
        ++S.Unreachables;
        break;
      case Instruction::Alloca:
        ++S.Allocas;
        break;
      case Instruction::GetElementPtr:
        ++S.AddressComputations;
        break;
      case Instruction::PHI:
        ++S.Phis;
        break;
      default:
        break;
      }
    }
    const Instruction *Last = Block.getTerminator();
    if (Last && Last->getNumSuccessors() == 2 && !isa<InvokeInst>(Last) && !isa<SwitchInst>(Last))
      ++S.ConditionalBranches;
  }
  return S;
}

void CallSiteObserver::decided(const Function &Callee, bool Inline) {
  auto &[Inlined, Refused] = Decisions[&Callee];
  ++(Inline ? Inlined : Refused);
}

void CallSiteObserver::observe(CallBase &Call, const BodyCounts &OfCaller, const BodyCounts &OfCallee,
                               FeatureValues &Values) {
  const Function &Caller = *Call.getCaller();
  const Function &Callee = *Call.getCalledFunction();
  const BodySummary &Body = summarise(Callee, OfCallee.Instructions);
  auto Set = [&Values](Feature F, int64_t Value) { Values[size_t(F)] = Value; };

  Set(Feature::callee_instructions, OfCallee.Instructions);
  Set(Feature::caller_instructions, OfCaller.Instructions);
  Set(Feature::callee_loads, OfCallee.Loads);
  Set(Feature::callee_stores, OfCallee.Stores);
  Set(Feature::callee_defined_calls, OfCallee.DefinedCalls);
  Set(Feature::callee_declared_calls, Body.DeclaredCalls);
  Set(Feature::callee_indirect_calls, Body.IndirectCalls);
  Set(Feature::callee_invokes, Body.Invokes);
  Set(Feature::callee_landing_pads, Body.LandingPads);
  Set(Feature::callee_conditional_branches, Body.ConditionalBranches);
  Set(Feature::callee_switches, Body.Switches);
  Set(Feature::callee_returns, Body.Returns);
  Set(Feature::callee_unreachables, Body.Unreachables);
  Set(Feature::callee_allocas, Body.Allocas);
  Set(Feature::callee_address_computations, Body.AddressComputations);
  Set(Feature::callee_phis, Body.Phis);
  Set(Feature::callee_arguments, int64_t(Callee.arg_size()));
  int64_t ByValue = 0;
  for (const Argument &A : Callee.args())
    ByValue += A.hasPassPointeeByValueCopyAttr();
  Set(Feature::callee_stack_arguments, ByValue);
  Set(Feature::callee_is_local, Callee.hasLocalLinkage());
  Set(Feature::callee_is_discardable, isDiscardable(Callee));
  Set(Feature::caller_is_local, Caller.hasLocalLinkage());
  Set(Feature::caller_is_discardable, isDiscardable(Caller));

  int64_t Sites = 0, SitesInCaller = 0, OtherUses = 0;
  for (const Use &U : Callee.uses()) {
    const auto *User = dyn_cast<CallBase>(U.getUser());
    if (User && User->isCallee(&U)) {
      ++Sites;
      SitesInCaller += User->getCaller() == &Caller;
    } else {
      ++OtherUses;
    }
    if (Sites + OtherUses == MostUses)
      break;
  }
  Set(Feature::callee_call_sites, Sites);
  Set(Feature::callee_call_sites_in_caller, SitesInCaller);
  Set(Feature::callee_other_uses, OtherUses);
  Set(Feature::callee_dies, (Callee.hasLocalLinkage() || isDiscardable(Callee)) && Sites == 1 && OtherUses == 0);
  auto Past = Decisions.find(&Callee);
  Set(Feature::callee_inlined_before, Past == Decisions.end() ? 0 : Past->second.first);
  Set(Feature::callee_refused_before, Past == Decisions.end() ? 0 : Past->second.second);
  Set(Feature::callee_has_unwind_table, Callee.hasUWTable());
  Set(Feature::callee_cannot_throw, Callee.doesNotThrow());
  Set(Feature::caller_has_personality, Caller.hasPersonalityFn());
  Set(Feature::call_is_invoke, isa<InvokeInst>(Call));
  Set(Feature::call_result_is_used, !Call.use_empty());
  int64_t StackArguments = 0, GlobalArguments = 0;
  for (const Use &A : Call.args()) {
    StackArguments += A->getType()->isPointerTy() && isStackAddress(A.get());
    GlobalArguments += isa<GlobalValue>(A->stripPointerCasts());
  }
  Set(Feature::call_stack_arguments, StackArguments);
  Set(Feature::call_global_arguments, GlobalArguments);
  const BasicBlock &Block = *Call.getParent();
  Set(Feature::call_block_is_unlikely, isa<UnreachableInst>(Block.getTerminator()));
  Set(Feature::call_is_in_cleanup, Block.isLandingPad() || isa<ResumeInst>(Block.getTerminator()));
  Set(Feature::callee_is_standard_library, isStandardLibrary(Callee.getName()));
  Set(Feature::caller_is_standard_library, isStandardLibrary(Caller.getName()));
  Set(Feature::callee_name_length, int64_t(Callee.getName().size()));
  Set(Feature::caller_name_length, int64_t(Caller.getName().size()));
}

} // namespace mlgokit
