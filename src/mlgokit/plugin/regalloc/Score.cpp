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

bool hasLog() {
  Expected<Settings> S = readSettings();
  if (!S) {
    consumeError(S.takeError()); // the advisors say it
    return false;
  }
  for (const Problem P : {Problem::RegallocEviction, Problem::RegallocPriority, Problem::RegallocWeight})
    if (!S->of(P).Log.empty())
      return true;
  return false;
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

void insertScoring(TargetPassConfig *Config) {
  const PassInfo *const Llvms = PassRegistry::getPassRegistry()->getPassInfo(LlvmsPass);
  if (Config && Llvms && hasScores() && hasLog())
    Config->insertPass(Llvms->getTypeInfo(), &Scoring::ID);
}

} // namespace mlgokit
