#include "inliner/LlvmAdvisor.h"

#include "inliner/Heuristic.h"
#include "majors/InlineAdvisor.h"

#include "llvm/Analysis/OptimizationRemarkEmitter.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Holds the feature buffer that MLInlineAdvisor writes into, and the answer that it reads.
class PolicyModelRunner final : public MLModelRunner {
public:
  PolicyModelRunner(LLVMContext &Ctx, const std::vector<TensorSpec> &Inputs)
      : MLModelRunner(Ctx, MLModelRunner::Kind::NoOp, Inputs.size()), Values(Inputs.size()) {
    for (size_t I = 0; I < Inputs.size(); ++I)
      setUpBufferForTensor(I, Inputs[I], &Values[I]);
  }
  std::vector<int64_t> Values;
  int64_t Answer = 0;

private:
  void *evaluateUntyped() override { return &Answer; }
};

/// Advice under which calls that come with an inlined body know through which call they came.
class PathAdvice final : public MLInlineAdvice {
public:
  PathAdvice(MLInlineAdvisor *Advisor, CallBase &Call, OptimizationRemarkEmitter &ORE, bool Inline, SiteKeys &Keys)
      : MLInlineAdvice(Advisor, Call, ORE, Inline), Keys(Keys) {
    if (Inline)
      Keys.enter(Call);
  }

private:
  void recordInliningImpl() override {
    Keys.leave(/*Inlined=*/true, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordInliningImpl();
  }
  void recordInliningWithCalleeDeletedImpl() override {
    Keys.leave(/*Inlined=*/true, /*CalleeIsThere=*/false);
    MLInlineAdvice::recordInliningWithCalleeDeletedImpl();
  }
  void recordUnsuccessfulInliningImpl(const InlineResult &Result) override {
    Keys.leave(/*Inlined=*/false, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordUnsuccessfulInliningImpl(Result);
  }
  void recordUnattemptedInliningImpl() override {
    Keys.leave(/*Inlined=*/false, /*CalleeIsThere=*/true);
    MLInlineAdvice::recordUnattemptedInliningImpl();
  }

  SiteKeys &Keys;
};

class LlvmAdvisor final : public MLInlineAdvisor {
public:
  LlvmAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM, const InlineParams &Params,
              std::unique_ptr<Decider> Decides)
      : MLInlineAdvisor(M, MAM, modelFrom([&M](const std::vector<TensorSpec> &Inputs) {
                          return std::make_unique<PolicyModelRunner>(M.getContext(), Inputs);
                        }),
                        [&FAM, Params](CallBase &Call) { return heuristicInlines(Call, FAM, Params); }),
        Decides(std::move(Decides)) {}

  void onPassEntry(LazyCallGraph::SCC *C) override {
    Decides->enterComponent();
    MLInlineAdvisor::onPassEntry(C);
  }

protected:
  std::unique_ptr<MLInlineAdvice> getAdviceFromModel(CallBase &Call, OptimizationRemarkEmitter &ORE) override {
    auto &Runner = static_cast<PolicyModelRunner &>(*ModelRunner);
    Runner.Answer = Decides->decide(Call, Runner.Values, BodyCounts::of(getCachedFPI(*Call.getCaller())),
                                    BodyCounts::of(getCachedFPI(*Call.getCalledFunction())),
                                    [&] { return GetDefaultAdvice(Call); });
    return advice(Call, ORE, Runner.Answer);
  }

  std::unique_ptr<MLInlineAdvice> getMandatoryAdviceImpl(CallBase &Call) override {
    return advice(Call, getCallerORE(Call), true);
  }

private:
  std::unique_ptr<MLInlineAdvice> advice(CallBase &Call, OptimizationRemarkEmitter &ORE, bool Inline) {
    if (SiteKeys *Keys = Decides->keys())
      return std::make_unique<PathAdvice>(this, Call, ORE, Inline, *Keys);
    return std::make_unique<MLInlineAdvice>(this, Call, ORE, Inline);
  }

  std::unique_ptr<Decider> Decides;
};

} // namespace

std::unique_ptr<InlineAdvisor> makeLlvmAdvisor(Module &M, ModuleAnalysisManager &MAM, FunctionAnalysisManager &FAM,
                                               const InlineParams &Params, std::unique_ptr<Decider> Decides) {
  return std::make_unique<LlvmAdvisor>(M, MAM, FAM, Params, std::move(Decides));
}

} // namespace mlgokit
