#include "passes/LoopReduce.h"

#include "llvm/IR/Function.h"
#include "llvm/Support/PrettyStackTrace.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Its value is `LoopReduce`.
constexpr StringLiteral LeftOutAttribute = "mlgokit-without";

} // namespace

void leaveOutLoopReduce(Function &F) { F.addFnAttr(LeftOutAttribute, LoopReduce); }

StringSet<> functionsWithoutLoopReduce(const Module &M) {
  StringSet<> Found;
  for (const Function &F : M) {
    if (F.getFnAttribute(LeftOutAttribute).getValueAsString() != LoopReduce)
      continue;
    std::string Printed;
    raw_string_ostream Out(Printed);
    F.printAsOperand(Out, /*PrintType=*/false);
    Found.insert(Out.str());
  }
  return Found;
}

bool isRunningOn(const StringSet<> &Functions) {
  const auto *Entry = static_cast<const PrettyStackTraceEntry *>(SavePrettyStackState());
  // The innermost entry is that of the pass on a loop, and the next one that of the loop passes on a function.
  if (!Entry || !(Entry = Entry->getNextEntry()))
    return false;
  std::string Printed;
  raw_string_ostream Out(Printed);
  Entry->print(Out);
  StringRef Name = StringRef(Out.str()).rtrim().split("' on function '").second;
  return Name.consume_back("'") && Functions.contains(Name);
}

} // namespace mlgokit
