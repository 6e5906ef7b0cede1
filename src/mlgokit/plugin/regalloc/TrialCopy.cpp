#include "regalloc/TrialCopy.h"

#include "regalloc/CodeSize.h"
#include "shared/ByteReader.h"
#include "shared/Descriptor.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/MC/MCDwarf.h"
#include "llvm/Support/ErrorHandling.h"

#include <csignal>
#include <cstdlib>
#include <memory>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr const char *CostNames[] = {"TotalSpillsCost", "TotalReloadsCost", "TotalFoldedSpillsCost",
                                     "TotalFoldedReloadsCost", "TotalCopiesCost"};
static_assert(std::size(CostNames) == CostCount, "a name for each");

/// What a copy knows; nothing in the compiler itself.
struct Copy {
  TrialOrder Order;
  Measures Found{};
};
std::optional<Copy> Mine;

/// What stands between the measures and the overrides of an answer.
struct Counts {
  uint32_t Questions[2], Made[2];
};

template <class T> bool send(const T *Values, size_t Count = 1) {
  return writeAll(Mine->Order.Answer, {reinterpret_cast<const char *>(Values), Count * sizeof(T)});
}

[[noreturn]] void finish() {
  const OverridePlan &Evictions = Mine->Order.Plan.Evictions, &Priorities = Mine->Order.Plan.Priorities;
  const Counts Sizes{{Evictions.Questions, Priorities.Questions},
                     {uint32_t(Evictions.Made.size()), uint32_t(Priorities.Made.size())}};
  const bool Sent = send(&Mine->Found) && send(&Sizes) && send(Evictions.Made.data(), Evictions.Made.size()) &&
                    send(Priorities.Made.data(), Priorities.Made.size());
  _exit(Sent ? 0 : 1);
}

[[noreturn]] void finishWith(std::optional<size_t> Code) {
  if (!Code)
    _exit(1);
  Mine->Found[CodeAt] = double(*Code);
  Mine->Found[UnwindAt] = double(Mine->Order.Function.getFrameInstructions().size());
  finish();
}

/// Reads what the allocator says of a function in a copy, and sees when its code is there.
class Listener final : public DiagnosticHandler {
  bool isMissedOptRemarkEnabled(StringRef Pass) const override { return Pass == "regalloc"; }
  bool isPassedOptRemarkEnabled(StringRef) const override { return false; }
  bool isAnalysisRemarkEnabled(StringRef Pass) const override { return Mine->Order.ToTheEnd && Pass == "asm-printer"; }
  bool isAnyRemarkEnabled() const override { return true; }

  bool handleDiagnostics(const DiagnosticInfo &Said) override {
    if (Said.getSeverity() == DS_Error)
      _exit(1);
    if (!DiagnosticInfoOptimizationBase::classof(&Said))
      return true;
    const auto &Remark = static_cast<const DiagnosticInfoOptimizationBase &>(Said);
    if (Remark.getRemarkName() == "SpillReloadCopies") {
      for (const auto &Argument : Remark.getArgs())
        for (size_t I = 0; I < std::size(CostNames); ++I)
          if (Argument.Key == CostNames[I])
            Mine->Found[I] = std::strtod(Argument.Val.c_str(), nullptr);
      if (!Mine->Order.ToTheEnd)
        finish();
    } else if (Remark.getRemarkName() == "InstructionCount" && Mine->Order.ToTheEnd) {
      const MachineFunction &MF = *static_cast<const DiagnosticInfoMIROptimization &>(Said).getBlock()->getParent();
      finishWith(&MF == &Mine->Order.Function ? emittedBytes(MF) : machineBytes(Mine->Order.Function));
    }
    return true;
  }
};

/// A copy has the compiler's files open, and would write to them or remove them.
void leaveFilesAlone() {
  for (int Signal : {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGPROF})
    signal(Signal, SIG_DFL);
  remove_fatal_error_handler();
  install_fatal_error_handler([](void *, const char *, bool) { _exit(1); });
  const int Nowhere = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (Nowhere < 0)
    _exit(1);
  dup2(Nowhere, STDERR_FILENO);
  for (int File = 1; File < 256; ++File) {
    struct stat Kind;
    if (File != Nowhere && fstat(File, &Kind) == 0 && S_ISREG(Kind.st_mode) &&
        (fcntl(File, F_GETFL) & O_ACCMODE) != O_RDONLY)
      dup2(Nowhere, File);
  }
}

} // namespace

std::optional<TrialAnswer> readAnswer(StringRef Bytes) {
  ByteReader In(Bytes);
  TrialAnswer Answer;
  Counts Sizes;
  if (!In.read(&Answer.Found) || !In.read(&Sizes) || !In.read(Answer.Made.Evictions, Sizes.Made[0]) ||
      !In.read(Answer.Made.Priorities, Sizes.Made[1]))
    return std::nullopt;
  return Answer;
}

void becomeTrial(const TrialOrder &Order, pid_t Parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != Parent)
    _exit(1);
  leaveFilesAlone();
  const rlimit NoCore{0, 0};
  setrlimit(RLIMIT_CORE, &NoCore);
  itimerval Limit{};
  Limit.it_value.tv_sec = time_t(Order.Seconds);
  Limit.it_value.tv_usec = suseconds_t((Order.Seconds - double(Limit.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_PROF, &Limit, nullptr);
  // To wait for a mutex that another thread held when this copy was made takes no processor time, and never ends.
  Limit.it_value = {time_t(60 + 20 * Order.Seconds), 0};
  setitimer(ITIMER_REAL, &Limit, nullptr);
  const Function &F = Order.Function.getFunction();
  // With no function after it, the copy comes to the pass that outlines. The function is the copy's own.
  const_cast<Function &>(F).addFnAttr("nooutline");
  Mine.emplace(Copy{Order});
  F.getContext().setDiagnosticHandler(std::make_unique<Listener>());
}

bool isTrial() { return Mine.has_value(); }

void endTrial(bool IsThere) {
  if (!Mine)
    return;
  // If its code is still to come, functions are not emitted one by one, as where a pass over the module outlines; then
  // what there is before that pass is what can be said of one alone.
  if (Mine->Order.ToTheEnd)
    finishWith(IsThere ? machineBytes(Mine->Order.Function) : std::nullopt);
  finish();
}

} // namespace mlgokit
