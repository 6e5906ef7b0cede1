// Two plugins for one question: what does a compilation take when its inlining decisions cost nothing?
//
// With MLGOKIT_RECORD defined, linked with the plugin's own object files and with calls of makePolicyAdvisor wrapped,
// it writes what the policy's advisor answers to each question, a byte each, to the file $REPLAY_ANSWERS. Without, it
// is a plugin by itself that gives these answers again, in their order, and looks at nothing.
#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#if __has_include("llvm/Plugins/PassPlugin.h")
#include "llvm/Plugins/PassPlugin.h"
#else
#include "llvm/Passes/PassPlugin.h"
#endif

#include <cstdlib>

#ifdef MLGOKIT_RECORD
#include "shared/Policy.h"
#endif

using namespace llvm;

namespace {

const char *answersPath() {
  const char *Path = std::getenv("REPLAY_ANSWERS");
  return Path ? Path : "/dev/null";
}

#ifdef MLGOKIT_RECORD

class Recorder final : public InlineAdvisor {
public:
  Recorder(Module &M, FunctionAnalysisManager &FAM, std::unique_ptr<InlineAdvisor> Asked)
      : InlineAdvisor(M, FAM), Asked(std::move(Asked)), Out(answersPath(), Code) {}

  void onPassEntry(LazyCallGraph::SCC *C) override { Asked->onPassEntry(C); }
  void onPassExit(LazyCallGraph::SCC *C) override { Asked->onPassExit(C); }

private:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &Call) override {
    std::unique_ptr<InlineAdvice> Advice = Asked->getAdvice(Call);
    Out << char('0' + Advice->isInliningRecommended());
    return Advice;
  }

  std::unique_ptr<InlineAdvisor> Asked;
  std::error_code Code;
  raw_fd_ostream Out;
};

#else

class Replay final : public InlineAdvisor {
public:
  Replay(Module &M, FunctionAnalysisManager &FAM, std::unique_ptr<MemoryBuffer> Answers)
      : InlineAdvisor(M, FAM), Answers(std::move(Answers)) {}

private:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &Call) override {
    if (Next == Answers->getBufferSize())
      M.getContext().emitError("replay: expected an answer to each question, found fewer");
    const bool Inline = Next < Answers->getBufferSize() && Answers->getBufferStart()[Next++] == '1';
    return std::make_unique<InlineAdvice>(this, Call, getCallerORE(Call), Inline);
  }

  std::unique_ptr<MemoryBuffer> Answers;
  size_t Next = 0;
};

InlineAdvisor *makeReplay(Module &M, FunctionAnalysisManager &FAM, InlineParams Params, InlineContext Context) {
  auto Read = MemoryBuffer::getFile(answersPath());
  if (Context.Pass != InlinePass::CGSCCInliner || !Read)
    return new DefaultInlineAdvisor(M, FAM, Params, Context);
  return new Replay(M, FAM, std::move(*Read));
}

#endif

} // namespace

#ifdef MLGOKIT_RECORD

using Sources = std::vector<size_t>;
std::unique_ptr<InlineAdvisor> makeReal(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                                        const InlineParams &Params, mlgokit::Policy P,
                                        Sources S) asm("__real_" MLGOKIT_MAKER);
std::unique_ptr<InlineAdvisor> makeWrapped(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                                           const InlineParams &Params, mlgokit::Policy P,
                                           Sources S) asm("__wrap_" MLGOKIT_MAKER);
std::unique_ptr<InlineAdvisor> makeWrapped(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                                           const InlineParams &Params, mlgokit::Policy P, Sources S) {
  return std::make_unique<Recorder>(M, FAM, makeReal(M, MAM, FAM, Params, std::move(P), std::move(S)));
}

#else

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "replay", LLVM_VERSION_STRING, [](PassBuilder &Builder) {
            Builder.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
              MAM.registerPass([] { return PluginInlineAdvisorAnalysis(makeReplay); });
            });
          }};
}

#endif
