// Eviction: whose register a live range takes.
//
// LLVM's own ML advisor computes the features. Its model is replaced by one of ours, inside the same process; what a
// decision costs beside the features is one virtual call.
#include "majors/RegAllocAbi.h"
#include "majors/RegAllocAdvisors.h"
#include "regalloc/Channel.h"
#include "regalloc/CurrentFunction.h"
#include "regalloc/EvictionModel.h"
#include "regalloc/RegAlloc.h"
#include "regalloc/RegAllocAnalysis.h"
#include "trials/OverrideTable.h"
#include "trials/TrialCopy.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/Analysis/InteractiveModelRunner.h"
#include "llvm/CodeGen/LiveInterval.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/PassRegistry.h"

#include <cstring>
#include <optional>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef ChannelOption = "regalloc-evict-interactive-channel-base";

// InteractiveModelRunner keeps the features that its advisor fills in a private member. An explicit instantiation may
// name it (C++17, [temp.explicit] 13.9.2); that is how this file learns names, types and shapes from the compiler
// itself.
template <auto Member> struct Reader {
  friend const std::vector<TensorSpec> &inputsOf(const InteractiveModelRunner &R) { return R.*Member; }
};
const std::vector<TensorSpec> &inputsOf(const InteractiveModelRunner &R);
template struct Reader<&InteractiveModelRunner::InputSpecs>;

/// Asks LLVM's ML advisor, which asks the model.
class Advisor final : public RegAllocEvictionAdvisor {
public:
  Advisor(const MachineFunction &MF, const RAGreedy &RA, std::unique_ptr<RegAllocEvictionAdvisor> Ml, EvictionModel &M,
          FunctionPlan *P)
      : RegAllocEvictionAdvisor(MF, RA), Heuristic(MF, RA), Ml(std::move(Ml)), M(M), P(P) {
    M.enter(MF.getName());
  }

private:
  MCRegister tryFindEvictionCandidate(const LiveInterval &Range, const AllocationOrder &Order, uint8_t CostLimit,
                                      const SmallVirtRegSet &Fixed) const override {
    EvictionQuestion Q{Heuristic, Range, Order, CostLimit, Fixed};
    if (P) {
      Q.Plan = &P->Evictions;
      Q.Wanted = P->Evictions.next(P->Shape.numberOf(Range.reg()));
      if (!Q.Wanted && !P->ByRule)
        return Q.askHeuristic();
    }
    if (Order.size() > M.registers())
      return Q.askHeuristic();
    M.Now = &Q;
    const MCRegister Found = Ml->tryFindEvictionCandidate(Range, Order, CostLimit, Fixed);
    M.Now = nullptr;
    // LLVM's advisor may give up before it asks; and of what it offers, the heuristic may take something else.
    if (!Q.Asked && (P || M.followsHeuristic()))
      return Q.askHeuristic();
    if (Q.Echo)
      return Q.DefaultAnswer;
    if (Found && (!Q.Asked || Order.at(Q.Column) != Found))
      report_fatal_error("mlgokit: expected LLVM's eviction advisor to take the register that the policy chose, found "
                         "another; this compiler is not one that the plugin knows");
    return Found;
  }

  bool canEvictHintInterference(const LiveInterval &Range, MCRegister Register,
                                const SmallVirtRegSet &Fixed) const override {
    return static_cast<const RegAllocEvictionAdvisor &>(Heuristic).canEvictHintInterference(Range, Register, Fixed);
  }

  const DefaultEvictionAdvisor Heuristic;
  const std::unique_ptr<RegAllocEvictionAdvisor> Ml;
  EvictionModel &M;
  FunctionPlan *const P; // it lives as long as the function is in the allocator
};

/// What the plugin keeps for the code generation of one module.
class Desk {
public:
  explicit Desk(Module &M) : Ctx(M.getContext()) {
    if (Error E = open(M))
      fail(std::move(E));
  }
  ~Desk() { leaveModule(); }
  static void prepare(TargetPassConfig *Config) { insertScoring(Config, /*ForEvictions=*/true); }

  std::unique_ptr<RegAllocEvictionAdvisor> advise(const MachineFunction &MF, const RAGreedy &RA,
                                                  function_ref<std::unique_ptr<RegAllocEvictionAdvisor>()> MakeMl) {
    const bool HasLog = !S.of(Problem::RegallocEviction).Log.empty();
    FunctionPlan *const Planned =
        Failed ? nullptr : enterFunction(const_cast<MachineFunction &>(MF), Table ? &*Table : nullptr, HasLog);
    const bool StandsAside =
        Planned ? !Planned->ByRule && Planned->Evictions.isIdle() : R == EvictionRule::Default && !HasLog;
    if (Failed || StandsAside)
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    std::unique_ptr<RegAllocEvictionAdvisor> Ml;
    if (M)
      Ml = MakeMl();
    else if (Error E = withSilentChannel(ChannelOption, [&] { Ml = MakeMl(); })) {
      fail(std::move(E));
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    }
    if (Error E = connect(Ml.get())) {
      fail(std::move(E));
      return std::make_unique<DefaultEvictionAdvisor>(MF, RA);
    }
    return std::make_unique<Advisor>(MF, RA, std::move(Ml), *M, Planned);
  }

  void finish(const MachineFunction &MF, function_ref<float()> Score) {
    if (M)
      M->finish(MF.getName(), Score);
  }

private:
  Error open(const Module &Of) {
    if (Error E = readSettings().moveInto(S))
      return E;
    if (Error E = loadTable(AllocationKind, S.Allocations, embeddedAllocations()).moveInto(Table))
      return E;
    const std::string &Given = S.of(Problem::RegallocEviction).Policy;
    const std::optional<EvictionRule> Named = StringSwitch<std::optional<EvictionRule>>(Given)
                                                  .Case(":default", EvictionRule::Default)
                                                  .Case(":random", EvictionRule::Random)
                                                  .Case(":first", EvictionRule::First)
                                                  .Default(std::nullopt);
    const bool OnlyTuned = (Table || hasTrials(Stage::Registers)) && !S.hasPolicy(Problem::RegallocEviction);
    if (!Named && !OnlyTuned)
      if (Error E = loadPolicy(Problem::RegallocEviction, S, Of).moveInto(P))
        return E;
    if (P && !P->isFor(Of))
      P.reset();
    R = Named.value_or(P ? EvictionRule::Policy : EvictionRule::Default);
    return refuseOptions({"regalloc-enable-advisor", ChannelOption}, policySettingOf(Problem::RegallocEviction));
  }

  /// Puts the model in the place of the one that LLVM's advisor was made with.
  Error connect(RegAllocEvictionAdvisor *Ml) {
    const auto Unknown = [](const char *What) {
      return createStringError(inconvertibleErrorCode(), std::string("expected LLVM's eviction advisor to have ") +
                                                             What +
                                                             " at its usual place, found something else; this "
                                                             "compiler is not one that the plugin knows");
    };
    if (!Ml)
      return Unknown("been made and a model");
    char *const Bytes = reinterpret_cast<char *>(Ml);
    const void *Table;
    std::memcpy(&Table, Bytes + EvictionAdvisorLayout::DefaultAdvisorAt, sizeof(Table));
    // A virtual table's first two words are not part of what an object points to.
    if (Table != MlgokitDefaultEvictionAdvisorTable + 2)
      return Unknown("the heuristic");
    InteractiveModelRunner *Theirs;
    std::memcpy(&Theirs, Bytes + EvictionAdvisorLayout::RunnerAt, sizeof(Theirs));
    std::memcpy(&Table, static_cast<const void *>(Theirs), sizeof(Table));
    if (Table != MlgokitInteractiveModelRunnerTable + 2)
      return Unknown("its model");
    if (!M)
      if (Error E = EvictionModel::create(Ctx, inputsOf(*Theirs), S, R, std::move(P)).moveInto(M))
        return E;
    MLModelRunner *const Ours = M.get();
    std::memcpy(Bytes + EvictionAdvisorLayout::RunnerAt, &Ours, sizeof(Ours));
    return Error::success();
  }

  void fail(Error E) {
    Failed = true;
    Ctx.emitError("mlgokit: " + toString(std::move(E)));
  }

  LLVMContext &Ctx;
  Settings S;
  EvictionRule R = EvictionRule::Default;
  std::optional<OverrideTable> Table;
  std::optional<Policy> P;
  std::unique_ptr<EvictionModel> M;
  bool Failed = false;
};

} // namespace

void registerEvictionAdvisor() {
  initializeRegAllocAdvisors(*PassRegistry::getPassRegistry());
  replaceAnalysis<EvictionAnalysis<Desk>, Problem::RegallocEviction>();
}

} // namespace mlgokit
