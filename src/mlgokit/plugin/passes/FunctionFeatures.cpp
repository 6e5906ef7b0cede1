#include "passes/FunctionFeatures.h"

#include "majors/Branches.h"

#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/Analysis/LoopInfo.h"
#include "llvm/IR/CFG.h"
#include "llvm/IR/Constants.h"
#include "llvm/IR/DataLayout.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Module.h"

#include <algorithm>
#include <iterator>

using namespace llvm;

namespace mlgokit {

namespace {

// Those of loops say what invariant code motion finds: constants and addresses that instructions in a loop have, and
// what is computed there of values from outside.
#define MLGOKIT_FUNCTION_FEATURES(X)                                                                                   \
  X(instructions)                                                                                                      \
  X(blocks)                                                                                                            \
  X(largest_block)                                                                                                     \
  X(entry_instructions)                                                                                                \
  X(arguments)                                                                                                         \
  X(stack_arguments)                                                                                                   \
  X(edges)                                                                                                             \
  X(critical_edges)                                                                                                    \
  X(joins)                                                                                                             \
  X(single_successors)                                                                                                 \
  X(conditional_branches)                                                                                              \
  X(switches)                                                                                                          \
  X(switch_cases)                                                                                                      \
  X(returns)                                                                                                           \
  X(unreachables)                                                                                                      \
  X(landing_pads)                                                                                                      \
  X(phis)                                                                                                              \
  X(phi_inputs)                                                                                                        \
  X(constant_phi_inputs)                                                                                               \
  X(calls)                                                                                                             \
  X(indirect_calls)                                                                                                    \
  X(intrinsics)                                                                                                        \
  X(call_arguments)                                                                                                    \
  X(constant_arguments)                                                                                                \
  X(tail_calls)                                                                                                        \
  X(noreturn_calls)                                                                                                    \
  X(loads)                                                                                                             \
  X(stores)                                                                                                            \
  X(constant_stores)                                                                                                   \
  X(allocas)                                                                                                           \
  X(address_computations)                                                                                              \
  X(constant_addresses)                                                                                                \
  X(comparisons)                                                                                                       \
  X(zero_comparisons)                                                                                                  \
  X(selects)                                                                                                           \
  X(casts)                                                                                                             \
  X(additions)                                                                                                         \
  X(multiplications)                                                                                                   \
  X(divisions)                                                                                                         \
  X(bit_operations)                                                                                                    \
  X(shifts)                                                                                                            \
  X(floating_operations)                                                                                               \
  X(vector_operations)                                                                                                 \
  X(narrow_values)                                                                                                     \
  X(wide_constants)                                                                                                    \
  X(repeated_constants)                                                                                                \
  X(globals)                                                                                                           \
  X(repeated_globals)                                                                                                  \
  X(values_across_blocks)                                                                                              \
  X(values_across_calls)                                                                                               \
  X(loops)                                                                                                             \
  X(deepest_loop)                                                                                                      \
  X(loop_blocks)                                                                                                       \
  X(loop_instructions)                                                                                                 \
  X(loop_exits)                                                                                                        \
  X(loop_calls)                                                                                                        \
  X(loop_invariants)                                                                                                   \
  X(loop_constants)                                                                                                    \
  X(loop_globals)                                                                                                      \
  X(self_loops)                                                                                                        \
  X(is_minsize)                                                                                                        \
  X(is_local)                                                                                                          \
  X(is_discardable)                                                                                                    \
  X(has_unwind_table)                                                                                                  \
  X(is_variadic)

struct Counts {
#define MLGOKIT_FIELD(NAME) int64_t NAME = 0;
  MLGOKIT_FUNCTION_FEATURES(MLGOKIT_FIELD)
#undef MLGOKIT_FIELD
};

constexpr StringRef Names[] = {
#define MLGOKIT_NAME(NAME) #NAME,
    MLGOKIT_FUNCTION_FEATURES(MLGOKIT_NAME)
#undef MLGOKIT_NAME
};

#undef MLGOKIT_FUNCTION_FEATURES

constexpr size_t ArgumentRegisters = 6; // of the System V convention; on other targets a number like any other
constexpr unsigned ByteBits = 8, WordBits = 32;

bool isIgnored(const Instruction &I) { return isa<DbgInfoIntrinsic>(I) || isa<PseudoProbeInst>(I); }

bool isRealCall(const Instruction &I) { return isa<CallBase>(I) && !isa<IntrinsicInst>(I); }

class Counter {
public:
  explicit Counter(const Function &F) : F(F), Dominators(const_cast<Function &>(F)), Loops(Dominators) {}

  Counts count() {
    C.arguments = int64_t(F.arg_size());
    C.stack_arguments = int64_t(F.arg_size() > ArgumentRegisters ? F.arg_size() - ArgumentRegisters : 0);
    C.is_minsize = F.hasMinSize();
    C.is_local = F.hasLocalLinkage();
    C.is_discardable = F.isDiscardableIfUnused();
    C.has_unwind_table = F.needsUnwindTableEntry();
    C.is_variadic = F.isVarArg();
    for (const BasicBlock &B : F)
      countBlock(B);
    countLoops();
    for (const auto &[Value, Uses] : ConstantUses)
      C.repeated_constants += Uses > 1 ? Uses - 1 : 0;
    C.globals = int64_t(GlobalUses.size());
    for (const auto &[Value, Uses] : GlobalUses)
      C.repeated_globals += Uses - 1;
    return C;
  }

private:
  void countBlock(const BasicBlock &B) {
    ++C.blocks;
    const size_t Successors = succ_size(&B);
    C.edges += int64_t(Successors);
    C.joins += pred_size(&B) > 1;
    C.single_successors += Successors == 1;
    if (Successors > 1)
      for (const BasicBlock *Next : successors(&B))
        C.critical_edges += pred_size(Next) > 1;
    const bool InLoop = Loops.getLoopFor(&B) != nullptr;
    C.loop_blocks += InLoop;
    int64_t Size = 0;
    bool HasCall = false;
    for (const Instruction &I : make_range(B.rbegin(), B.rend())) {
      if (isIgnored(I))
        continue;
      ++Size;
      countValue(I, HasCall);
      countOperands(I, InLoop);
      countOpcode(I);
      HasCall |= isRealCall(I);
      C.loop_calls += InLoop && isRealCall(I);
    }
    C.instructions += Size;
    C.loop_instructions += InLoop ? Size : 0;
    C.largest_block = std::max(C.largest_block, Size);
    if (B.isEntryBlock())
      C.entry_instructions = Size;
  }

  /// Where the value of \p I is used; \p CallFollows says whether its block has a call behind it.
  void countValue(const Instruction &I, bool CallFollows) {
    const bool Across = any_of(I.users(), [&](const User *U) {
      const auto *Other = dyn_cast<Instruction>(U);
      return Other && (Other->getParent() != I.getParent() || isa<PHINode>(Other));
    });
    C.values_across_blocks += Across;
    C.values_across_calls += Across && CallFollows;
    Type *const T = I.getType();
    C.narrow_values += T->isIntegerTy() && T->getIntegerBitWidth() > 1 && T->getIntegerBitWidth() < WordBits;
    C.vector_operations += T->isVectorTy();
    C.floating_operations += T->isFPOrFPVectorTy();
  }

  void countOperands(const Instruction &I, bool InLoop) {
    if (isa<PHINode>(I) || isa<SwitchInst>(I))
      return;
    for (const Value *Operand : I.operands()) {
      if (const auto *Number = dyn_cast<ConstantInt>(Operand)) {
        const bool IsWide = Number->getValue().getSignificantBits() > ByteBits;
        C.wide_constants += IsWide;
        if (IsWide)
          ++ConstantUses[Operand];
        C.loop_constants += InLoop && IsWide;
      } else if (const auto *Global = dyn_cast<GlobalValue>(Operand->stripPointerCasts())) {
        const auto *Call = dyn_cast<CallBase>(&I);
        if (Call && Call->getCalledOperand() == Operand)
          continue;
        ++GlobalUses[Global];
        C.loop_globals += InLoop;
      }
    }
  }

  void countCall(const CallBase &Call) {
    if (isa<IntrinsicInst>(Call)) {
      ++C.intrinsics;
      return;
    }
    ++C.calls;
    C.indirect_calls += Call.isIndirectCall();
    C.call_arguments += int64_t(Call.arg_size());
    C.constant_arguments += count_if(Call.args(), [](const Value *V) { return isa<Constant>(V); });
    C.noreturn_calls += Call.doesNotReturn();
    const auto *Plain = dyn_cast<CallInst>(&Call);
    C.tail_calls += Plain && Plain->isTailCall() && isa_and_nonnull<ReturnInst>(Plain->getNextNode());
  }

  void countOpcode(const Instruction &I) {
    if (const auto *Call = dyn_cast<CallBase>(&I))
      return countCall(*Call);
    if (const auto *Phi = dyn_cast<PHINode>(&I)) {
      ++C.phis;
      C.phi_inputs += Phi->getNumIncomingValues();
      C.constant_phi_inputs += count_if(Phi->incoming_values(), [](const Value *V) { return isa<Constant>(V); });
      return;
    }
    if (const auto *Switch = dyn_cast<SwitchInst>(&I)) {
      ++C.switches;
      C.switch_cases += Switch->getNumCases();
      return;
    }
    C.casts += isa<CastInst>(I);
    C.conditional_branches += isConditionalBranch(I);
    switch (I.getOpcode()) {
    case Instruction::Ret:
      ++C.returns;
      break;
    case Instruction::Unreachable:
      ++C.unreachables;
      break;
    case Instruction::LandingPad:
      ++C.landing_pads;
      break;
    case Instruction::Load:
      ++C.loads;
      break;
    case Instruction::Store:
      ++C.stores;
      C.constant_stores += isa<Constant>(I.getOperand(0));
      break;
    case Instruction::Alloca:
      ++C.allocas;
      break;
    case Instruction::GetElementPtr:
      ++C.address_computations;
      C.constant_addresses += cast<GetElementPtrInst>(I).hasAllConstantIndices();
      break;
    case Instruction::ICmp:
    case Instruction::FCmp:
      ++C.comparisons;
      C.zero_comparisons += isa<Constant>(I.getOperand(1)) && cast<Constant>(I.getOperand(1))->isNullValue();
      break;
    case Instruction::Select:
      ++C.selects;
      break;
    case Instruction::Add:
    case Instruction::Sub:
      ++C.additions;
      break;
    case Instruction::Mul:
      ++C.multiplications;
      break;
    case Instruction::UDiv:
    case Instruction::SDiv:
    case Instruction::URem:
    case Instruction::SRem:
      ++C.divisions;
      break;
    case Instruction::And:
    case Instruction::Or:
    case Instruction::Xor:
      ++C.bit_operations;
      break;
    case Instruction::Shl:
    case Instruction::LShr:
    case Instruction::AShr:
      ++C.shifts;
      break;
    default:
      break;
    }
  }

  void countLoops() {
    for (const Loop *L : Loops.getLoopsInPreorder()) {
      ++C.loops;
      C.deepest_loop = std::max(C.deepest_loop, int64_t(L->getLoopDepth()));
      SmallVector<BasicBlock *, 8> Exits;
      L->getExitingBlocks(Exits);
      C.loop_exits += int64_t(Exits.size());
      C.self_loops += L->getNumBlocks() == 1;
      for (const BasicBlock *B : L->blocks())
        if (Loops.getLoopFor(B) == L)
          C.loop_invariants += count_if(*B, [&](const Instruction &I) {
            return !isIgnored(I) && !I.isTerminator() && !isa<PHINode>(I) && L->hasLoopInvariantOperands(&I);
          });
    }
  }

  const Function &F;
  const DominatorTree Dominators;
  const LoopInfo Loops;
  DenseMap<const Value *, int64_t> ConstantUses, GlobalUses;
  Counts C;
};

} // namespace

ArrayRef<StringRef> functionFeatureNames() { return Names; }

std::vector<int64_t> functionFeatures(const Function &F) {
  static_assert(sizeof(Counts) == std::size(Names) * sizeof(int64_t), "nothing but the counts");
  const Counts Found = Counter(F).count();
  const auto *Begin = reinterpret_cast<const int64_t *>(&Found);
  return {Begin, Begin + std::size(Names)};
}

} // namespace mlgokit
