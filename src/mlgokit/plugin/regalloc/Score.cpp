// LLVM's own score of an allocation, for training logs. LLVM has a pass behind the allocator that computes it, and that
// does nothing where LLVM is built without TFLite. Ours comes behind that one and does what it would do.
#include "majors/RegAllocAdvisors.h"
#include "regalloc/RegAlloc.h"
#include "shared/Settings.h"

#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineFunctionPass.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef LlvmsPass = "regallocscoringpass";

class Scoring final : public MachineFunctionPass {
public:
  static char ID;
  Scoring() : MachineFunctionPass(ID) {}

private:
  void getAnalysisUsage(AnalysisUsage &AU) const override {
    AU.setPreservesAll();
    AU.addRequired<EvictionAnalysisBase>();
    AU.addRequired<PriorityAnalysisBase>();
    AU.addRequired<MachineBlockFrequencyInfoWrapperPass>();
    MachineFunctionPass::getAnalysisUsage(AU);
  }

  bool runOnMachineFunction(MachineFunction &MF) override {
    const auto Score = [&] {
      return float(
          calculateRegAllocScore(MF, getAnalysis<MachineBlockFrequencyInfoWrapperPass>().getMBFI()).getScore());
    };
    getAnalysis<EvictionAnalysisBase>().logRewardIfNeeded(MF, Score);
    getAnalysis<PriorityAnalysisBase>().logRewardIfNeeded(MF, Score);
    return false;
  }
};
char Scoring::ID = 0;

/// Whether a log is wanted. With one of evictions, their analysis alone inserts the pass, so that it runs once.
bool hasLog(bool ForEvictions) {
  const std::optional<Settings> S = expectedToOptional(readSettings());
  if (!S)
    return false; // the advisors say what is wrong
  if (!S->of(Problem::RegallocEviction).Log.empty())
    return ForEvictions;
  return !ForEvictions && !(S->of(Problem::RegallocPriority).Log.empty() && S->of(Problem::RegallocWeight).Log.empty());
}

} // namespace

void registerScoring() {
  PassRegistry &R = *PassRegistry::getPassRegistry();
  initializeRegAllocScoringPass(R);
  static const PassInfo Ours(
      "Score of an allocation", "mlgokit-regalloc-score", &Scoring::ID, []() -> Pass * { return new Scoring; }, false,
      false);
  if (!R.getPassInfo(&Scoring::ID))
    R.registerPass(Ours);
}

bool hasScores() { return &calculateRegAllocScore != nullptr; }

void insertScoring(TargetPassConfig *Config, bool ForEvictions) {
  const PassInfo *const Llvms = PassRegistry::getPassRegistry()->getPassInfo(LlvmsPass);
  if (Config && Llvms && hasScores() && hasLog(ForEvictions))
    Config->insertPass(Llvms->getTypeInfo(), &Scoring::ID);
}

} // namespace mlgokit
