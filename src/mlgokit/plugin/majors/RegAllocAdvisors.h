// How the register allocator gets its advisors: from an analysis before LLVM 21, from the provider in one since then.
#ifndef MLGOKIT_MAJORS_REGALLOCADVISORS_H
#define MLGOKIT_MAJORS_REGALLOCADVISORS_H

#include "majors/RegAllocAbi.h"

#include "llvm/CodeGen/MachineBlockFrequencyInfo.h"
#include "llvm/CodeGen/MachineLoopInfo.h"
#include "llvm/CodeGen/SlotIndexes.h"
#include "llvm/CodeGen/TargetPassConfig.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/Module.h"
#include "llvm/InitializePasses.h"
#include "llvm/PassRegistry.h"

#include <memory>
#include <optional>

namespace mlgokit {

#if LLVM_VERSION_MAJOR >= 21
using EvictionAnalysisBase = llvm::RegAllocEvictionAdvisorAnalysisLegacy;
using PriorityAnalysisBase = llvm::RegAllocPriorityAdvisorAnalysisLegacy;
#else
using EvictionAnalysisBase = llvm::RegAllocEvictionAdvisorAnalysis;
using PriorityAnalysisBase = llvm::RegAllocPriorityAdvisorAnalysis;
#endif

/// LLVM's analysis \p Base with a \p Maker of advisors for each module, which needs the analyses \p Required.
template <class Base, class Maker, class... Required> class ModuleAnalysis : public Base {
protected:
  ModuleAnalysis() : Base(Base::AdvisorMode::Release) {}

#if LLVM_VERSION_MAJOR < 21
  std::optional<Maker> Made;
#endif

private:
  // The allocator needs this analysis, so that it is made while the passes behind the allocator are not yet added.
  void initializePass() override { Maker::prepare(this->template getAnalysisIfAvailable<llvm::TargetPassConfig>()); }

  void logRewardIfNeeded(const llvm::MachineFunction &MF, llvm::function_ref<float()> Score) override {
#if LLVM_VERSION_MAJOR >= 21
    this->Provider->logRewardIfNeeded(MF, Score);
#else
    Made->finish(MF, Score);
#endif
  }

  void getAnalysisUsage(llvm::AnalysisUsage &AU) const override {
    (AU.addRequired<Required>(), ...);
    Base::getAnalysisUsage(AU);
  }

  bool doInitialization(llvm::Module &M) override {
#if LLVM_VERSION_MAJOR >= 21
    this->Provider = std::make_unique<Maker>(M);
#else
    Made.emplace(M);
#endif
    return false;
  }
};

#if LLVM_VERSION_MAJOR >= 21

template <class Desk> class EvictionProvider final : public llvm::RegAllocEvictionAdvisorProvider {
public:
  explicit EvictionProvider(llvm::Module &M)
      : RegAllocEvictionAdvisorProvider(AdvisorMode::Release, M.getContext()),
        Llvms(llvm::createReleaseModeAdvisorProvider(Ctx)), D(M) {}
  static void prepare(llvm::TargetPassConfig *Config) { Desk::prepare(Config); }
  std::unique_ptr<llvm::RegAllocEvictionAdvisor> getAdvisor(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA,
                                                            llvm::MachineBlockFrequencyInfo *Frequencies,
                                                            llvm::MachineLoopInfo *Loops) override {
    return D.advise(MF, RA, [&] { return Llvms->getAdvisor(MF, RA, Frequencies, Loops); });
  }
  void logRewardIfNeeded(const llvm::MachineFunction &MF, llvm::function_ref<float()> Score) override {
    D.finish(MF, Score);
  }

private:
  const std::unique_ptr<RegAllocEvictionAdvisorProvider> Llvms;
  Desk D;
};

/// Makes the eviction advisors that a \p Desk wants: its `advise` is given how to make LLVM's.
template <class Desk>
class EvictionAnalysis final
    : public ModuleAnalysis<EvictionAnalysisBase, EvictionProvider<Desk>, llvm::MachineBlockFrequencyInfoWrapperPass,
                            llvm::MachineLoopInfoWrapperPass> {};

template <class Desk> class PriorityProvider final : public llvm::RegAllocPriorityAdvisorProvider {
public:
  explicit PriorityProvider(llvm::Module &M) : RegAllocPriorityAdvisorProvider(AdvisorMode::Release), D(M) {}
  static void prepare(llvm::TargetPassConfig *Config) { Desk::prepare(Config); }
  std::unique_ptr<llvm::RegAllocPriorityAdvisor> getAdvisor(const llvm::MachineFunction &MF, const llvm::RAGreedy &RA,
                                                            llvm::SlotIndexes &Indexes) override {
    return D.advise(MF, RA, &Indexes);
  }
  void logRewardIfNeeded(const llvm::MachineFunction &MF, llvm::function_ref<float()> Score) override {
    D.finish(MF, Score);
  }

private:
  Desk D;
};

/// Makes the priority advisors that a \p Desk wants.
template <class Desk>
class PriorityAnalysis final
    : public ModuleAnalysis<PriorityAnalysisBase, PriorityProvider<Desk>, llvm::SlotIndexesWrapperPass> {};

inline void initializeRegAllocAdvisors(llvm::PassRegistry &R) {
  llvm::initializeRegAllocEvictionAdvisorAnalysisLegacyPass(R);
  llvm::initializeRegAllocPriorityAdvisorAnalysisLegacyPass(R);
}

#else

template <class Desk>
class EvictionAnalysis final
    : public ModuleAnalysis<EvictionAnalysisBase, Desk, llvm::MachineBlockFrequencyInfoWrapperPass,
                            llvm::MachineLoopInfoWrapperPass> {
  std::unique_ptr<llvm::RegAllocEvictionAdvisor> getAdvisor(const llvm::MachineFunction &MF,
                                                            const llvm::RAGreedy &RA) override {
    return this->Made->advise(MF, RA, [&]() -> std::unique_ptr<llvm::RegAllocEvictionAdvisor> {
      if (!Llvms)
        Llvms.reset(llvm::createReleaseModeAdvisor());
      if (!Llvms)
        return nullptr;
      // LLVM's analysis is in no pass manager; it sees the other analyses through this one.
      if (!Llvms->getResolver())
        Llvms->setResolver(new llvm::AnalysisResolver(this->getResolver()->getPMDataManager()));
      llvm::AnalysisResolver &Seen = *Llvms->getResolver();
      Seen.clearAnalysisImpls();
      for (char *ID : {&llvm::MachineBlockFrequencyInfoWrapperPass::ID, &llvm::MachineLoopInfoWrapperPass::ID}) {
        llvm::Pass *Found = this->getResolver()->findImplPass(ID);
        if (!Found)
          return nullptr;
        Seen.addAnalysisImplsPair(ID, Found);
      }
      return Llvms->getAdvisor(MF, RA);
    });
  }

  std::unique_ptr<llvm::RegAllocEvictionAdvisorAnalysis> Llvms;
};

template <class Desk>
class PriorityAnalysis final : public ModuleAnalysis<PriorityAnalysisBase, Desk, llvm::SlotIndexesWrapperPass> {
  std::unique_ptr<llvm::RegAllocPriorityAdvisor> getAdvisor(const llvm::MachineFunction &MF,
                                                            const llvm::RAGreedy &RA) override {
    return this->Made->advise(MF, RA, &this->template getAnalysis<llvm::SlotIndexesWrapperPass>().getSI());
  }
};

inline void initializeRegAllocAdvisors(llvm::PassRegistry &R) {
  llvm::initializeRegAllocEvictionAdvisorAnalysisPass(R);
  llvm::initializeRegAllocPriorityAdvisorAnalysisPass(R);
}

#endif

} // namespace mlgokit

#endif
