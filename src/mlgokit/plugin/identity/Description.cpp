#include "identity/Description.h"
#include "identity/Identity.h"
#include "majors/FunctionProperties.h"
#include "majors/PipelineCallbacks.h"
#include "majors/SourceLanguage.h"
#include "shared/Settings.h"

#include "llvm/Analysis/LoopInfo.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/Dominators.h"
#include "llvm/IR/InstrTypes.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdlib>

using namespace llvm;

namespace mlgokit {

namespace {

bool wantsEnd() {
  const char *Variable = std::getenv("MLGOKIT_DESCRIBE_AT");
  return Variable && StringRef(Variable) == "end";
}

StringRef linkageName(const Function &F) {
  switch (F.getLinkage()) {
  case GlobalValue::ExternalLinkage:
    return "external";
  case GlobalValue::AvailableExternallyLinkage:
    return "available_externally";
  case GlobalValue::LinkOnceAnyLinkage:
    return "linkonce";
  case GlobalValue::LinkOnceODRLinkage:
    return "linkonce_odr";
  case GlobalValue::WeakAnyLinkage:
    return "weak";
  case GlobalValue::WeakODRLinkage:
    return "weak_odr";
  case GlobalValue::InternalLinkage:
    return "internal";
  case GlobalValue::PrivateLinkage:
    return "private";
  default:
    return "other";
  }
}

struct Column {
  std::string Name;
  int64_t Value;
};

/// LLVM's own properties under LLVM's names: which there are is known only to its printer.
void addProperties(std::vector<Column> &Row, Function &F) {
  DominatorTree Tree(F);
  LoopInfo Loops(Tree);
  std::string Text;
  raw_string_ostream Out(Text);
  propertiesOf(F, Tree, Loops).print(Out);
  SmallVector<StringRef, 64> Lines;
  StringRef(Out.str()).split(Lines, '\n', -1, false);
  for (StringRef Line : Lines) {
    const auto [Name, Number] = Line.split(": ");
    int64_t Value;
    if (!Number.trim().getAsInteger(10, Value))
      Row.push_back({Name.str(), Value});
  }
}

void addCounts(std::vector<Column> &Row, const Function &F) {
  int64_t Opcodes[Instruction::OtherOpsEnd] = {};
  int64_t Instructions = 0, CallSites = 0, Decidable = 0;
  for (const BasicBlock &Block : F)
    for (const Instruction &I : Block) {
      if (isa<DbgInfoIntrinsic>(I))
        continue;
      ++Instructions;
      ++Opcodes[I.getOpcode()];
      auto *Call = dyn_cast<CallBase>(&I);
      if (!Call || isa<IntrinsicInst>(Call))
        continue;
      ++CallSites;
      const Function *Callee = Call->getCalledFunction();
      Decidable += Callee && !Callee->isDeclaration();
    }
  Row.push_back({"instructions", Instructions});
  Row.push_back({"call_sites", CallSites});
  Row.push_back({"decidable_call_sites", Decidable});
  Row.push_back({"arguments", int64_t(F.arg_size())});
  Row.push_back({"blocks", int64_t(F.size())});
  for (unsigned Opcode = 1; Opcode < std::size(Opcodes); ++Opcode)
    if (Opcode != Instruction::UserOp1 && Opcode != Instruction::UserOp2)
      Row.push_back({std::string("opcode_") + Instruction::getOpcodeName(Opcode), Opcodes[Opcode]});
}

std::string languageOf(const Module &M) {
  for (const DICompileUnit *Unit : M.debug_compile_units())
    return sourceLanguage(*Unit).str();
  return "";
}

/// One line of JSON for the names of the columns, one for each function, and one for the module at the end.
void write(Module &M, raw_ostream &Out) {
  const Identity Whole = identify(M);
  int64_t Functions = 0, Declarations = 0, Bytes = 0;
  bool Named = false;
  for (Function &F : M) {
    if (F.isDeclaration()) {
      Declarations += !F.isIntrinsic();
      continue;
    }
    ++Functions;
    std::vector<Column> Row;
    addProperties(Row, F);
    addCounts(Row, F);
    if (!Named) {
      json::Array Names;
      for (const Column &C : Row)
        Names.push_back(C.Name);
      Out << json::Value(json::Object{{"columns", std::move(Names)}}) << '\n';
      Named = true;
    }
    Out << '[' << json::Value(json::fixUTF8(F.getName())) << ",\"" << linkageName(F) << "\",\""
        << toHex(Whole.Definitions.lookup(&F)) << '"';
    for (const Column &C : Row)
      Out << ',' << C.Value;
    Out << "]\n";
  }
  for (const GlobalVariable &Variable : M.globals())
    if (Variable.hasInitializer() && Variable.getValueType()->isSized())
      Bytes += M.getDataLayout().getTypeAllocSize(Variable.getValueType()).getKnownMinValue();
  Out << json::Value(json::Object{{"llvm", LLVM_VERSION_MAJOR},
                                  {"identity", toHex(Whole.Module)},
                                  {"functions", Functions},
                                  {"declarations", Declarations},
                                  {"global_bytes", Bytes},
                                  {"language", languageOf(M)}})
      << '\n';
}

struct DescriptionPass : PassInfoMixin<DescriptionPass> {
  PreservedAnalyses run(Module &M, ModuleAnalysisManager &) {
    const std::string Path = descriptionPath();
    std::error_code Error;
    raw_fd_ostream Out(Path, Error, sys::fs::OF_None);
    if (!Error) {
      write(M, Out);
      Out.close();
      Error = Out.error();
      Out.clear_error();
    }
    if (Error)
      M.getContext().emitError("mlgokit: cannot write the description to " + Path + ": " + Error.message());
    else
      // What comes after is not wanted, and tearing the module down costs as much as describing it.
      std::_Exit(0);
    return PreservedAnalyses::all();
  }

  static bool isRequired() { return true; }
};

} // namespace

void registerDescription(PassBuilder &Builder) {
  if (descriptionPath().empty())
    return;
  if (!wantsEnd())
    return Builder.registerPipelineStartEPCallback(
        [](ModulePassManager &Passes, OptimizationLevel) { Passes.addPass(DescriptionPass()); });
  addAfterOptimizer<DescriptionPass>(Builder);
}

} // namespace mlgokit
