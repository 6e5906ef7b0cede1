// The pass plugin: advisors that ask a policy, in an unmodified clang, opt, llc or lld.
//
//   clang -Oz -fpass-plugin=policy.so file.cpp
//   MLGOKIT_POLICY=my.policy MLGOKIT_EVICTION_POLICY=other.policy clang -Oz -fpass-plugin=mlgokit.so file.cpp
//   opt -load-pass-plugin=mlgokit.so -mlgokit-policy=my.policy -passes='default<Oz>' file.bc
//   llc -load=mlgokit.so -mlgokit-priority-policy=my.policy file.bc
#include "identity/Description.h"
#include "inliner/Advisor.h"
#include "inliner/DecisionTable.h"
#include "inliner/ReplayLines.h"
#include "majors/PassPlugin.h"
#include "passes/ExecutedList.h"
#include "passes/Gate.h"
#include "passes/OptimizerGate.h"
#include "regalloc/RegAlloc.h"
#include "reuse/KnownDecisions.h"
#include "reuse/KnownFunctions.h"
#include "reuse/Resident.h"
#include "shared/Settings.h"
#include "trials/Trials.h"

#include "llvm/Analysis/InlineAdvisor.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"

using namespace llvm;

namespace {

/// An advisor factory is a bare function and is not given the module's analysis manager, which MLInlineAdvisor needs.
/// Registration and pipeline run on one thread, also in parallel ThinLTO.
thread_local ModuleAnalysisManager *Manager = nullptr;

/// Whether the pipeline that runs is that of a full link-time optimization, as the builder of it said.
thread_local bool AtLink = false;

/// rustc puts another diagnostic handler before code generation, so nothing can listen to that earlier.
constexpr mlgokit::CodeGenerationListener Listener = {
    [] { return mlgokit::isListed() || mlgokit::listPath() || mlgokit::isWorkersCopy(); },
    [](Module &M, bool HasGate) {
      mlgokit::endOnErrors(M.getContext());
      mlgokit::enterExecutedList(M.getContext());
      if (!HasGate)
        mlgokit::enterCodeGeneration(M);
    },
};

/// When the plugin is loaded, so before `opt`, `llc` and `clang -load` parse their command line, and before anybody
/// makes a register allocator.
const bool Registered =
    (mlgokit::registerOptions(), mlgokit::registerPassGate(Listener), mlgokit::registerEvictionAdvisor(),
     mlgokit::registerPriorityAdvisor(), mlgokit::registerFirstTimeCost(), mlgokit::registerScoring(), true);

bool isForSize(const Module &M) {
  return any_of(M, [](const Function &F) { return !F.isDeclaration() && F.hasOptSize(); });
}

bool hasDefinition(const Module &M) {
  return any_of(M, [](const Function &F) { return !F.isDeclaration(); });
}

bool isTunedAtAnyLevel(const Module &M, const std::optional<mlgokit::DecisionTable> &Table) {
  const mlgokit::DecisionTable::Entry *Tuned = Table ? Table->find(M, AtLink) : nullptr;
  return Tuned && Tuned->AnyLevel;
}

/// The advisor for \p M; null if LLVM's own is to decide.
Expected<std::unique_ptr<InlineAdvisor>> ownAdvisor(Module &M, FunctionAnalysisManager &FAM, const InlineParams &Params,
                                                    const mlgokit::Settings &Settings, ThinOrFullLTOPhase Phase,
                                                    std::optional<mlgokit::DecisionTable> Table) {
  const bool AnotherProblem = Settings.hasAllocations() || Settings.hasPasses() || Settings.hasOptimizerPasses() ||
                              mlgokit::hasTrials(mlgokit::Stage::Registers) ||
                              mlgokit::hasTrials(mlgokit::Stage::Passes) ||
                              any_of(mlgokit::AllProblems, [&](mlgokit::Problem P) { return Settings.hasPolicy(P); });
  if (AnotherProblem && !Settings.hasPolicy(mlgokit::Problem::InlineSize) && !Settings.hasDecisions())
    return nullptr;
  if (Settings.OnlyAtLink && !AtLink)
    return nullptr;
  if (!Settings.AnyLevel && !isForSize(M) && !isTunedAtAnyLevel(M, Table))
    return nullptr;
  return mlgokit::createAdvisor(M, *Manager, FAM, Params, Settings, Phase, AtLink, std::move(Table));
}

InlineAdvisor *advisorFactory(Module &M, FunctionAnalysisManager &FAM, InlineParams Params, InlineContext Context) {
  auto Llvms = [&] { return std::make_unique<DefaultInlineAdvisor>(M, FAM, Params, Context); };
  // An error fails the compilation; the advisor only lets the pipeline run to its end.
  auto Fail = [&](Error Why) {
    M.getContext().emitError("mlgokit: " + toString(std::move(Why)));
    return Llvms().release();
  };
  // The early always-inliner, the sample-profile loader and the like are not what the policy was trained for.
  // The inliner that is named by itself (-passes=inliner-ml-advisor-release) has a context with nothing in it.
  const bool ByName = Context.Pass == InlineContext().Pass;
  const bool Ours = Manager && (ByName || Context.Pass == InlinePass::CGSCCInliner) && hasDefinition(M);
  if (!Ours)
    return Llvms().release();
  if (Error Both = mlgokit::refuseOptions({"cgscc-inline-replay"}, "the plugin"))
    return Fail(std::move(Both));
  mlgokit::serveRequests(M, AtLink);
  mlgokit::enterInliner(M);
  Expected<mlgokit::Settings> Settings = mlgokit::readSettings();
  if (!Settings)
    return Fail(Settings.takeError());
  // It decides by a policy in every module, as LLVM's does.
  Settings->AnyLevel |= ByName;
  Expected<std::optional<mlgokit::DecisionTable>> Table = mlgokit::loadDecisions(*Settings);
  if (!Table)
    return Fail(Table.takeError());
  // What the link is to leave out of a function, the compile step before it does not.
  if (!*Table || !(*Table)->defers(Context.LTOPhase))
    // As of inlining, a policy was trained for final compilations.
    mlgokit::enterOptimizerGate(M, Context.LTOPhase == ThinOrFullLTOPhase::None || Settings->InLto);
  Expected<std::unique_ptr<InlineAdvisor>> Advisor =
      ownAdvisor(M, FAM, Params, *Settings, Context.LTOPhase, std::move(*Table));
  if (!Advisor)
    return Fail(Advisor.takeError());
  std::unique_ptr<InlineAdvisor> Decides = *Advisor ? std::move(*Advisor) : Llvms();
  Expected<std::unique_ptr<InlineAdvisor>> Written = mlgokit::withReplayLines(std::move(Decides), M, FAM, *Settings);
  if (!Written)
    return Fail(Written.takeError());
  return Written->release();
}

} // namespace

#ifdef _LIBCPP_VERSION
#define MLGOKIT_CXX_LIBRARY "libc++"
#else
#define MLGOKIT_CXX_LIBRARY "libstdc++"
#endif

/// For those who want to know, without loading the plugin, which compilers it is for.
extern "C" LLVM_ATTRIBUTE_USED const char MlgokitMadeFor[] =
    "mlgokit plugin for LLVM " LLVM_VERSION_STRING " with " MLGOKIT_CXX_LIBRARY;

extern "C" LLVM_ATTRIBUTE_WEAK PassPluginLibraryInfo llvmGetPassPluginInfo() {
  return {LLVM_PLUGIN_API_VERSION, "mlgokit", LLVM_VERSION_STRING, [](PassBuilder &Builder) {
            mlgokit::registerDescription(Builder);
            // It looks at functions before those that are known are dropped.
            mlgokit::registerOptimizerGate(Builder);
            mlgokit::registerKnownFunctions(Builder);
            mlgokit::registerKnownDecisions(Builder);
            AtLink = false;
            Builder.registerFullLinkTimeOptimizationEarlyEPCallback(
                [](ModulePassManager &, OptimizationLevel) { AtLink = true; });
            Builder.registerAnalysisRegistrationCallback([](ModuleAnalysisManager &MAM) {
              Manager = &MAM;
              MAM.registerPass([] { return PluginInlineAdvisorAnalysis(advisorFactory); });
            });
          }};
}
