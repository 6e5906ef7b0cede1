// The register allocator's advisors as LLVM 19.1, 21.1, 22.1 and 23.1 lay them out, where their headers are private.
//
// Facts only, and only those that a binary interface needs: which virtual functions in which order, which members of
// which size. Eviction.cpp holds them against the running compiler before it trusts them. Sources, in the release
// branches:
//   llvm/lib/CodeGen/RegAllocEvictionAdvisor.h, RegAllocPriorityAdvisor.h (19; installed headers since 21),
//   llvm/lib/CodeGen/AllocationOrder.h, MLRegAllocEvictAdvisor.cpp, MLRegAllocPriorityAdvisor.cpp (all).
#ifndef MLGOKIT_MAJORS_REGALLOCABI_H
#define MLGOKIT_MAJORS_REGALLOCABI_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/CodeGen/Register.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/MC/MCRegister.h"
#include "llvm/Pass.h"

#include <memory>

#if LLVM_VERSION_MAJOR >= 21
#include "llvm/CodeGen/RegAllocEvictionAdvisor.h"
#include "llvm/CodeGen/RegAllocPriorityAdvisor.h"
#endif

namespace llvm {

class LiveInterval;
class MachineBlockFrequencyInfo;
class MachineFunction;
class MLModelRunner;
class RAGreedy;
class SlotIndexes;

/// LLVM's counts of what an allocation left, each by frequency; llvm/lib/CodeGen/RegAllocScore.h.
class RegAllocScore {
public:
  __attribute__((weak)) double getScore() const;

private:
  double Counts[6];
};
__attribute__((weak)) RegAllocScore calculateRegAllocScore(const MachineFunction &MF,
                                                           const MachineBlockFrequencyInfo &Frequencies);

/// The registers that a live range may get, hints first. That of the class is not needed: the allocator hands out
/// references.
class AllocationOrder {
public:
  AllocationOrder() = delete;
  /// The position of \p Register, hints counted, as the columns of an eviction are; none if it is not there.
  std::optional<size_t> positionOf(MCRegister Register) const;
  /// The register at a position.
  MCRegister at(size_t Position) const;
  /// How many there are, hints counted.
  size_t size() const;

private:
  template <typename Callable> void forEach(Callable Visit) const {
    for (MCPhysReg Hint : Hints)
      if (!Visit(MCRegister(Hint)))
        return;
    for (int I = 0; I < IterationLimit; ++I)
      if (!is_contained(Hints, Order[size_t(I)]) && !Visit(MCRegister(Order[size_t(I)])))
        return;
  }

  const SmallVector<MCPhysReg, 16> Hints;
  ArrayRef<MCPhysReg> Order;
  const int IterationLimit; // 0 if the hints must be kept
};

inline std::optional<size_t> AllocationOrder::positionOf(MCRegister Register) const {
  size_t Position = 0;
  bool Found = false;
  forEach([&](MCRegister Now) {
    Found = Now == Register;
    Position += !Found;
    return !Found;
  });
  return Found ? std::optional<size_t>(Position) : std::nullopt;
}

inline size_t AllocationOrder::size() const {
  size_t Size = 0;
  forEach([&](MCRegister) {
    ++Size;
    return true;
  });
  return Size;
}

inline MCRegister AllocationOrder::at(size_t Position) const {
  MCRegister Register;
  forEach([&](MCRegister Now) {
    Register = Position == 0 ? Now : MCRegister();
    return Position-- != 0;
  });
  return Register;
}

#if LLVM_VERSION_MAJOR < 21

using SmallVirtRegSet = SmallSet<Register, 16>;

class RegAllocEvictionAdvisor {
public:
  virtual ~RegAllocEvictionAdvisor() = default;
  virtual MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t,
                                              const SmallVirtRegSet &) const = 0;
  virtual bool canEvictHintInterference(const LiveInterval &, MCRegister, const SmallVirtRegSet &) const = 0;

protected:
  RegAllocEvictionAdvisor(const MachineFunction &, const RAGreedy &);

private:
  const void *Analyses[8];
  ArrayRef<uint8_t> RegisterCosts;
  bool LocalReassignment;
};

class DefaultEvictionAdvisor : public RegAllocEvictionAdvisor {
public:
  DefaultEvictionAdvisor(const MachineFunction &MF, const RAGreedy &RA) : RegAllocEvictionAdvisor(MF, RA) {}

private:
  MCRegister tryFindEvictionCandidate(const LiveInterval &, const AllocationOrder &, uint8_t,
                                      const SmallVirtRegSet &) const override;
  bool canEvictHintInterference(const LiveInterval &, MCRegister, const SmallVirtRegSet &) const override;
};

class RegAllocPriorityAdvisor {
public:
  virtual ~RegAllocPriorityAdvisor() = default;
  virtual unsigned getPriority(const LiveInterval &) const = 0;
  RegAllocPriorityAdvisor(const MachineFunction &, const RAGreedy &, SlotIndexes *);

private:
  const void *Analyses[7];
  bool Preferences[2];
};

class DefaultPriorityAdvisor : public RegAllocPriorityAdvisor {
public:
  DefaultPriorityAdvisor(const MachineFunction &MF, const RAGreedy &RA, SlotIndexes *Indexes)
      : RegAllocPriorityAdvisor(MF, RA, Indexes) {}

private:
  unsigned getPriority(const LiveInterval &) const override;
};

class RegAllocEvictionAdvisorAnalysis : public ImmutablePass {
public:
  enum class AdvisorMode : int { Default, Release, Development };
  explicit RegAllocEvictionAdvisorAnalysis(AdvisorMode Mode) : ImmutablePass(ID), Mode(Mode) {}
  static char ID;
  virtual std::unique_ptr<RegAllocEvictionAdvisor> getAdvisor(const MachineFunction &, const RAGreedy &) = 0;
  virtual void logRewardIfNeeded(const MachineFunction &, function_ref<float()>) {}

protected:
  void getAnalysisUsage(AnalysisUsage &AU) const override { AU.setPreservesAll(); }

private:
  StringRef getPassName() const override;
  const AdvisorMode Mode;
};

class RegAllocPriorityAdvisorAnalysis : public ImmutablePass {
public:
  enum class AdvisorMode : int { Default, Release, Development, Dummy };
  explicit RegAllocPriorityAdvisorAnalysis(AdvisorMode Mode) : ImmutablePass(ID), Mode(Mode) {}
  static char ID;
  virtual std::unique_ptr<RegAllocPriorityAdvisor> getAdvisor(const MachineFunction &, const RAGreedy &) = 0;
  virtual void logRewardIfNeeded(const MachineFunction &, function_ref<float()>) {}

protected:
  void getAnalysisUsage(AnalysisUsage &AU) const override { AU.setPreservesAll(); }

private:
  StringRef getPassName() const override;
  const AdvisorMode Mode;
};

RegAllocEvictionAdvisorAnalysis *createReleaseModeAdvisor();

#endif // before 21

/// Fills the three features of a live range, of which one (the stage) needs the allocator's private state.
class MLPriorityAdvisor : public RegAllocPriorityAdvisor {
public:
  MLPriorityAdvisor(const MachineFunction &, const RAGreedy &, SlotIndexes *, MLModelRunner *);

protected:
  const RegAllocPriorityAdvisor &getDefaultAdvisor() const { return DefaultAdvisor; }
  float getPriorityImpl(const LiveInterval &) const;
  unsigned getPriority(const LiveInterval &) const override;

private:
  const DefaultPriorityAdvisor DefaultAdvisor;
  MLModelRunner *const Runner;
};

/// The head of LLVM's own eviction advisor, a class without a name outside of its file.
struct EvictionAdvisorLayout {
  static constexpr size_t DefaultAdvisorAt = sizeof(RegAllocEvictionAdvisor);
  static constexpr size_t RunnerAt = DefaultAdvisorAt + sizeof(DefaultEvictionAdvisor);
};
static_assert(sizeof(RegAllocEvictionAdvisor) == 12 * sizeof(void *), "not the layout that this file describes");
static_assert(sizeof(DefaultEvictionAdvisor) == sizeof(RegAllocEvictionAdvisor), "an advisor with members of its own");

} // namespace llvm

/// Where the virtual tables of LLVM's classes begin, to know an object's class without RTTI.
extern "C" {
extern void *const MlgokitDefaultEvictionAdvisorTable[] asm("_ZTVN4llvm22DefaultEvictionAdvisorE");
extern void *const MlgokitInteractiveModelRunnerTable[] asm("_ZTVN4llvm22InteractiveModelRunnerE");
}

#endif
