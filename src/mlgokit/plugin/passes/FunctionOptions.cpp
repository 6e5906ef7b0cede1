#include "passes/FunctionOptions.h"

#include "passes/PassNames.h"
#include "passes/UnwindRows.h"
#include "shared/MinSize.h"
#include "trials/OverridePlan.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Function.h"
#include "llvm/Support/CommandLine.h"

#include <sys/syscall.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

/// What a function's own attributes say, or those that a table or a policy adds.
struct AttributeCandidate {
  StringLiteral Name; // in tables
  bool (*MayApply)(const Function &F);
  void (*Apply)(Function &F);
};

bool hasMinSize(const Function &F) { return F.hasMinSize(); }

/// Without minsize the function keeps optsize.
void removeMinSize(Function &F) {
  F.removeFnAttr(Attribute::MinSize);
  F.addFnAttr(HadMinSize);
}

bool mayHaveJumpTables(const Function &F) { return !F.getFnAttribute("no-jump-tables").getValueAsBool(); }

void forbidJumpTables(Function &F) { F.addFnAttr("no-jump-tables", "true"); }

/// `ATTRIBUTES` in tune/spaces/passes/candidates.py has the same.
constexpr AttributeCandidate Attributes[] = {
    {"minsize", hasMinSize, removeMinSize},
    {"no-jump-tables", mayHaveJumpTables, forbidJumpTables},
    {"frame-pointer", mayKeepFramePointer, keepFramePointer},
    {"no-pushed-constants", mayPushConstants, forbidPushedConstants},
};

/// Some majors lack some of them. `OPTIONS` in tune/spaces/passes/candidates.py has the same.
constexpr StringLiteral OfCodeGenerator[] = {
    "-disable-phi-elim-edge-splitting=1",
    "-force-precise-rotation-cost=1",
    "-greedy-reverse-local-assignment=1",
    "-grow-region-complexity-budget=0",
    "-join-globalcopies=1",
    "-join-splitedges=1",
    "-machine-sink-split=0",
    "-misched-prera-direction=topdown",
    "-misched=ilpmin",
    "-phi-elim-split-all-critical-edges=1",
    "-pre-RA-sched=list-burr",
    "-pre-RA-sched=list-ilp",
    "-pre-RA-sched=source",
    "-sink-insts-to-avoid-spills=1",
    "-tail-dup-placement=0",
};

} // namespace

const ArrayRef<StringLiteral> CodeGeneratorOptions = OfCodeGenerator;

bool FunctionOptions::isMainThread() { return getpid() == pid_t(syscall(SYS_gettid)); }

void FunctionOptions::add(StringRef Text) {
  const auto [Name, Value] = Text.drop_front().split('=');
  cl::Option *const Found = cl::getRegisteredOptions().lookup(Name);
  // What the command line sets stays.
  if (Found && !Found->getNumOccurrences())
    Candidates.push_back({passNumber(Text), Found, Text, Value});
}

void FunctionOptions::set(Function &F, OverridePlan &Plan) {
  for (const AttributeCandidate &A : Attributes)
    if (Plan.next(passNumber(A.Name)) && A.MayApply(F)) {
      A.Apply(F);
      Plan.record(0);
    }
  for (const Candidate &C : Candidates)
    if (Plan.next(C.Number) && take(C))
      Plan.record(0);
}

void FunctionOptions::set(ArrayRef<Override> LeftOut) {
  for (const Candidate &C : Candidates)
    if (any_of(LeftOut, [&](const Override &O) { return O.Of == C.Number; }))
      take(C);
}

void FunctionOptions::set(Function &F, function_ref<bool(StringRef)> IsWanted) {
  for (const AttributeCandidate &A : Attributes)
    if (A.MayApply(F) && IsWanted(A.Name))
      A.Apply(F);
  for (const Candidate &C : Candidates)
    if (IsWanted(C.Text))
      take(C);
}

bool FunctionOptions::take(const Candidate &C) {
  // Of one option that a table has two values for, the first counts.
  if (is_contained(Changed, C.Option))
    return false;
  // A value that this major does not know counts as an occurrence of the option, too.
  Changed.push_back(C.Option);
  return !C.Option->addOccurrence(0, C.Option->ArgStr, C.Value);
}

void FunctionOptions::reset() {
  for (cl::Option *Option : Changed)
    Option->reset();
  Changed.clear();
}

} // namespace mlgokit
