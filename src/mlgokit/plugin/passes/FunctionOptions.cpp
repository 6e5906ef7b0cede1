#include "passes/FunctionOptions.h"

#include "passes/PassNames.h"
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

/// Both return whether they changed the function.
bool removeMinSize(Function &F) {
  if (!F.hasMinSize())
    return false;
  F.removeFnAttr(Attribute::MinSize);
  F.addFnAttr(HadMinSize);
  return true;
}

bool forbidJumpTables(Function &F) {
  const bool Changes = !F.getFnAttribute("no-jump-tables").getValueAsBool();
  F.addFnAttr("no-jump-tables", "true");
  return Changes;
}

/// `ATTRIBUTES` in tune/spaces/passes/candidates.py has the same. Without minsize the function keeps optsize.
constexpr std::pair<StringLiteral, bool (*)(Function &)> Attributes[] = {{"minsize", removeMinSize},
                                                                         {"no-jump-tables", forbidJumpTables}};

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
  for (const auto &[Name, Apply] : Attributes)
    if (Plan.next(passNumber(Name)) && Apply(F))
      Plan.record(0);
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
  for (const auto &[Name, Apply] : Attributes)
    if (IsWanted(Name))
      Apply(F);
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
