#include "trials/TrialCopy.h"

#include "shared/ByteReader.h"
#include "shared/Descriptor.h"
#include "shared/Executed.h"
#include "trials/CodeSize.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineFunction.h"
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
static_assert(std::size(CostNames) == AllocationCosts, "a name for each");

/// What a copy knows; nothing in the compiler itself.
struct Copy {
  TrialOrder Order;
  Deciders Plans{};
  Measures Found{};
};
std::optional<Copy> Mine;

/// What stands between the measures and the overrides of an answer.
struct Counts {
  uint32_t Questions[3] = {}, Made[3] = {};
};

template <class T> bool send(const T *Values, size_t Count = 1) {
  return writeAll(Mine->Order.Answer, {reinterpret_cast<const char *>(Values), Count * sizeof(T)});
}

[[noreturn]] void finish() {
  Counts Sizes;
  for (size_t I = 0; I < Mine->Plans.size(); ++I)
    if (const OverridePlan *P = Mine->Plans[I]) {
      Sizes.Questions[I] = P->Questions;
      Sizes.Made[I] = uint32_t(P->Made.size());
    }
  bool Sent = send(&Mine->Found) && send(&Sizes);
  for (const OverridePlan *P : Mine->Plans)
    Sent = Sent && (!P || send(P->Made.data(), P->Made.size()));
  _exit(Sent ? 0 : 1);
}

[[noreturn]] void finishWith(std::optional<size_t> Code, MachineFunction &MF) {
  if (!Code)
    _exit(1);
  Mine->Found[CodeAt] = double(*Code) - double(relaxedBytes(MF));
  Mine->Found[UnwindAt] = double(MF.getFrameInstructions().size());
  Mine->Found[TablesAt] = double(jumpTableBytes(MF));
  if (Mine->Order.Executed)
    Mine->Found[ExecutedAt] = executedInstructions(MF);
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
      // The function is the copy's own.
      auto &MF = const_cast<MachineFunction &>(
          *static_cast<const DiagnosticInfoMIROptimization &>(Said).getBlock()->getParent());
      if (&MF.getFunction() == &Mine->Order.Function)
        finishWith(emittedBytes(MF), MF);
      comeTo(MF.getFunction());
    }
    return true;
  }
};

/// A copy has the compiler's files open, and would write to them or remove them.
void leaveFilesAlone() {
  for (int Signal :
       {SIGSEGV, SIGABRT, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGTERM, SIGINT, SIGHUP, SIGPIPE, SIGPROF, SIGALRM})
    signal(Signal, SIG_DFL);
  sigset_t None;
  sigemptyset(&None);
  sigprocmask(SIG_SETMASK, &None, nullptr);
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
      !In.read(Answer.Made.Priorities, Sizes.Made[1]) || !In.read(Answer.Made.Passes, Sizes.Made[2]))
    return std::nullopt;
  return Answer;
}

void becomeTrial(TrialOrder Order, pid_t Parent) {
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
  const Function &F = Order.Function;
  // With no function after it, the copy comes to the pass that outlines. The function is the copy's own.
  const_cast<Function &>(F).addFnAttr("nooutline");
  Mine.emplace(Copy{std::move(Order)});
  F.getContext().setDiagnosticHandler(std::make_unique<Listener>());
}

void decideBy(const Deciders &Plans) {
  if (Mine)
    Mine->Plans = Plans;
}

bool isTrial() { return Mine.has_value(); }

void comeTo(const Function &F) {
  if (!Mine || &F == &Mine->Order.Function)
    return;
  MachineFunction *const MF = Mine->Order.Code();
  if (!MF)
    return;
  // LLVM would have said what an allocation costs, if it cost anything.
  if (!Mine->Order.ToTheEnd)
    finish();
  finishWith(machineBytes(*MF), *MF);
}

void leaveModule() {
  if (Mine && !Mine->Order.ToTheEnd)
    finish();
  if (Mine)
    _exit(1);
}

} // namespace mlgokit
