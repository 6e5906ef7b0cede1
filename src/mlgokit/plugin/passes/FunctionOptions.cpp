#include "passes/FunctionOptions.h"

#include "passes/PassNames.h"
#include "trials/OverridePlan.h"

#include "llvm/IR/Function.h"
#include "llvm/Support/CommandLine.h"

#include <sys/syscall.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

bool dropsMinSize(Function &F) {
  const bool Has = F.hasMinSize();
  F.removeFnAttr(Attribute::MinSize);
  return Has;
}

bool dropsJumpTables(Function &F) {
  const bool Has = !F.getFnAttribute("no-jump-tables").getValueAsBool();
  F.addFnAttr("no-jump-tables", "true");
  return Has;
}

/// Attributes of which each instruction selector makes its own code.
constexpr std::pair<StringLiteral, bool (*)(Function &)> Attributes[] = {{"minsize", dropsMinSize},
                                                                         {"no-jump-tables", dropsJumpTables}};

/// Options that passes of the code generator read for each function anew, and that nothing but the command line sets.
/// `OPTIONS` in tune/spaces/passes/candidates.py is the twin.
constexpr StringLiteral Options[] = {
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

bool isMainThread() { return getpid() == pid_t(syscall(SYS_gettid)); }

} // namespace

FunctionOptions::FunctionOptions() {
  if (!isMainThread())
    return;
  for (StringRef Text : Options) {
    const auto [Name, Value] = Text.drop_front().split('=');
    cl::Option *const Found = cl::getRegisteredOptions().lookup(Name);
    // What the user set, nobody changes.
    if (Found && !Found->getNumOccurrences())
      Choices.push_back({passNumber(Text), Found, Value});
  }
}

void FunctionOptions::set(Function &F, OverridePlan &Plan) {
  for (const auto &[Name, Changes] : Attributes)
    if (Plan.next(passNumber(Name)) && Changes(F))
      Plan.record(0);
  for (const Choice &C : Choices)
    if (Plan.next(C.Number) && !C.Option->addOccurrence(0, C.Option->ArgStr, C.Value)) {
      Plan.record(0);
      Changed.push_back(C.Option);
    }
}

void FunctionOptions::reset() {
  for (cl::Option *Option : Changed)
    Option->reset();
  Changed.clear();
}

} // namespace mlgokit
