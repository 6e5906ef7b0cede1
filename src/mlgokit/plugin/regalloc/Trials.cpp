#include "regalloc/Trials.h"

#include "regalloc/CodeSize.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCDwarf.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGOTP3\n", 8);
constexpr size_t LongestAnswer = 1 << 26;
constexpr const char *CostNames[] = {"TotalSpillsCost", "TotalReloadsCost", "TotalFoldedSpillsCost",
                                     "TotalFoldedReloadsCost", "TotalCopiesCost"};
// Behind LLVM's costs: bytes of code, and unwind instructions.
constexpr size_t CodeAt = std::size(CostNames), UnwindAt = CodeAt + 1, MeasureCount = UnwindAt + 1;
using Measures = std::array<double, MeasureCount>;

struct Trial {
  double EvictionFlips;
  double PriorityFlips;
  uint64_t Seed;
  uint32_t ByRule;
  uint32_t Unused;
};
static_assert(sizeof(Trial) == 32, "as in files");

/// Trials of one function. Each departs from the best before it, at first from known decisions.
struct Series {
  double Score = 0; // of the base
  double Free = 0;  // weighted costs up to this are not penalised
  Departures Base;
  std::vector<Trial> Trials;
};

struct Request {
  double Seconds = 0; // of processor time for one trial
  Measures Weights{};
  double Penalty = 0; // for weighted costs beyond what is free
  DenseMap<uint64_t, std::vector<Series>> ByKey;
  /// Whether a function has to be compiled to its end to be judged.
  bool wantsCode() const { return Weights[CodeAt] != 0 || Weights[UnwindAt] != 0; }
  double score(const Measures &Found, double Free) const {
    double Costs = 0, Rest = 0;
    for (size_t I = 0; I < Found.size(); ++I)
      (I < CodeAt ? Costs : Rest) += Weights[I] * Found[I];
    return Costs + Rest + Penalty * std::max(0.0, Costs - Free);
  }
};

/// What a copy knows; null in the compiler itself.
struct Copy {
  Plan *Now = nullptr;
  const MachineFunction *Of = nullptr;
  int Answer = -1;
  bool ToTheEnd = false; // of the function's code, not of its allocation
  Measures Found{};
};
std::optional<Copy> Mine;

[[noreturn]] void finish() {
  const uint32_t Counts[] = {Mine->Now->Evictions.Questions, Mine->Now->Priorities.Questions,
                             uint32_t(Mine->Now->Evictions.Made.size()), uint32_t(Mine->Now->Priorities.Made.size())};
  const auto Send = [](const void *Begin, size_t Size) {
    const char *At = static_cast<const char *>(Begin);
    while (Size) {
      const ssize_t Written = write(Mine->Answer, At, Size);
      if (Written < 0 && errno == EINTR)
        continue;
      if (Written <= 0)
        _exit(1);
      At += Written;
      Size -= size_t(Written);
    }
  };
  Send(Mine->Found.data(), sizeof Mine->Found);
  Send(Counts, sizeof Counts);
  for (const std::vector<Departure> *Made : {&Mine->Now->Evictions.Made, &Mine->Now->Priorities.Made})
    Send(Made->data(), Made->size() * sizeof(Departure));
  _exit(0);
}

[[noreturn]] void finishWith(std::optional<size_t> Code) {
  if (!Code)
    _exit(1);
  Mine->Found[CodeAt] = double(*Code);
  Mine->Found[UnwindAt] = double(Mine->Of->getFrameInstructions().size());
  finish();
}

/// Reads what the allocator says of a function in a copy, and sees when its code is there.
class Listener final : public DiagnosticHandler {
  bool isMissedOptRemarkEnabled(StringRef Pass) const override { return Pass == "regalloc"; }
  bool isPassedOptRemarkEnabled(StringRef) const override { return false; }
  bool isAnalysisRemarkEnabled(StringRef Pass) const override { return Mine->ToTheEnd && Pass == "asm-printer"; }
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
      if (!Mine->ToTheEnd)
        finish();
    } else if (Remark.getRemarkName() == "InstructionCount" && Mine->ToTheEnd) {
      const MachineFunction &MF = *static_cast<const DiagnosticInfoMIROptimization &>(Said).getBlock()->getParent();
      finishWith(&MF == Mine->Of ? emittedBytes(MF) : machineBytes(*Mine->Of));
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

void becomeCopy(const MachineFunction &MF, double Seconds, pid_t Parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != Parent)
    _exit(1);
  leaveFilesAlone();
  const rlimit NoCore{0, 0};
  setrlimit(RLIMIT_CORE, &NoCore);
  itimerval Limit{};
  Limit.it_value.tv_sec = time_t(Seconds);
  Limit.it_value.tv_usec = suseconds_t((Seconds - double(Limit.it_value.tv_sec)) * 1e6);
  setitimer(ITIMER_PROF, &Limit, nullptr);
  // With no function after it, the copy comes to the pass that outlines. The function is the copy's own.
  const_cast<Function &>(MF.getFunction()).addFnAttr("nooutline");
  MF.getFunction().getContext().setDiagnosticHandler(std::make_unique<Listener>());
}

std::optional<Request> readRequest(StringRef Bytes) {
  if (!Bytes.starts_with(Magic))
    return std::nullopt;
  FileReader In(Bytes.drop_front(Magic.size()));
  Request R;
  uint32_t Count = 0;
  if (!In.read(&R.Seconds) || !In.read(R.Weights.data(), R.Weights.size()) || !In.read(&R.Penalty) || !In.read(&Count))
    return std::nullopt;
  for (uint32_t I = 0; I < Count; ++I) {
    uint64_t Key = 0;
    uint32_t Counts[3] = {};
    Series S;
    if (!In.read(&Key) || !In.read(&S.Score) || !In.read(&S.Free) || !In.read(Counts, 3) ||
        !In.read(S.Base.Evictions, Counts[0]) || !In.read(S.Base.Priorities, Counts[1]) ||
        Counts[2] > In.left() / sizeof(Trial))
      return std::nullopt;
    S.Trials.resize(Counts[2]);
    In.read(S.Trials.data(), Counts[2]);
    R.ByKey[Key].push_back(std::move(S));
  }
  return R;
}

const Request *request(LLVMContext &Ctx) {
  static const std::optional<Request> Read = [&]() -> std::optional<Request> {
    const char *Path = getenv("MLGOKIT_TRIALS");
    auto File = MemoryBuffer::getFile(Path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
    std::optional<Request> Found;
    if (File)
      Found = readRequest((*File)->getBuffer());
    if (!Found)
      Ctx.emitError(Twine("mlgokit: MLGOKIT_TRIALS: expected a readable file with trials, found another: ") + Path);
    return Found;
  }();
  return Read ? &*Read : nullptr;
}

/// Appends to the file with the results; false if that fails.
bool report(ArrayRef<char> Bytes) {
  static const int File = [] {
    const char *Path = getenv("MLGOKIT_TRIED");
    return Path ? open(Path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666) : -1;
  }();
  while (!Bytes.empty()) {
    const ssize_t Written = write(File, Bytes.data(), Bytes.size());
    if (Written < 0 && errno == EINTR)
      continue;
    if (Written <= 0)
      return false;
    Bytes = Bytes.drop_front(size_t(Written));
  }
  return true;
}

template <class T> void append(SmallVectorImpl<char> &Bytes, const T &Value) {
  const char *Begin = reinterpret_cast<const char *>(&Value);
  Bytes.append(Begin, Begin + sizeof Value);
}

/// Lets the trials that follow depart from this one, if it is better, or as good by fewer decisions.
void adopt(Series &Best, StringRef Answer, const Request &R) {
  FileReader In(Answer);
  Measures Found;
  uint32_t Counts[4];
  Departures Made;
  if (!In.read(Found.data(), Found.size()) || !In.read(Counts, 4) || !In.read(Made.Evictions, Counts[2]) ||
      !In.read(Made.Priorities, Counts[3]))
    return;
  const double Score = R.score(Found, Best.Free);
  const auto SizeOf = [](const Departures &D) { return D.Evictions.size() + D.Priorities.size(); };
  if (Score > Best.Score || (Score == Best.Score && SizeOf(Made) >= SizeOf(Best.Base)))
    return;
  Best.Score = Score;
  Best.Base = std::move(Made);
}

double seconds(const rusage &Usage) {
  return double(Usage.ru_utime.tv_sec + Usage.ru_stime.tv_sec) +
         1e-6 * double(Usage.ru_utime.tv_usec + Usage.ru_stime.tv_usec);
}

} // namespace

bool hasTrials() {
  const char *Path = getenv("MLGOKIT_TRIALS");
  return !Mine && Path && *Path;
}

void endTrial(bool IsThere) {
  if (!Mine)
    return;
  // If its code is still to come, functions are not emitted one by one, as where a pass over the module outlines; then
  // what there is before that pass is what can be said of one alone.
  if (Mine->ToTheEnd)
    finishWith(IsThere ? machineBytes(*Mine->Of) : std::nullopt);
  finish();
}

std::unique_ptr<Plan> runTrials(const MachineFunction &MF, const FunctionShape &Shape) {
  LLVMContext &Ctx = MF.getFunction().getContext();
  const Request *Wanted = request(Ctx);
  if (!Wanted)
    return nullptr;
  const auto Found = Wanted->ByKey.find(Shape.key());
  SmallVector<char, 0> Bytes;
  uint32_t Count = 0;
  if (Found != Wanted->ByKey.end())
    for (const Series &S : Found->second)
      Count += uint32_t(S.Trials.size());
  append(Bytes, Shape.key());
  append(Bytes, uint32_t(MF.getName().size()));
  append(Bytes, Count);
  Bytes.append(MF.getName().begin(), MF.getName().end());
  bool Told = report(Bytes);
  if (!Count && Told)
    return nullptr;
  for (Series S : Found->second)
    for (const Trial &T : S.Trials) {
      int Ends[2];
      const pid_t Self = getpid();
      if (!Told || pipe2(Ends, O_CLOEXEC) < 0) {
        Ctx.emitError("mlgokit: trials of allocations: expected room for their results, found none");
        return nullptr;
      }
      const pid_t Child = fork();
      if (Child == 0) {
        close(Ends[0]);
        becomeCopy(MF, Wanted->Seconds, Self);
        std::unique_ptr<Plan> P(new Plan{Shape, Course(S.Base.Evictions, T.EvictionFlips, T.Seed),
                                         Course(S.Base.Priorities, T.PriorityFlips, ~T.Seed), T.ByRule != 0});
        Mine = Copy{P.get(), &MF, Ends[1], Wanted->wantsCode()};
        return P;
      }
      close(Ends[1]);
      Bytes.clear();
      SmallVector<char, 0> Answer;
      rusage Usage{};
      int Status = -1;
      if (Child > 0) {
        char Block[65536];
        for (ssize_t Read; (Read = read(Ends[0], Block, sizeof Block)) > 0 || (Read < 0 && errno == EINTR);)
          if (Read > 0 && Answer.size() < LongestAnswer)
            Answer.append(Block, Block + Read);
        while (wait4(Child, &Status, 0, &Usage) < 0 && errno == EINTR)
          ;
      }
      close(Ends[0]);
      if (Status != 0)
        Answer.clear();
      adopt(S, {Answer.data(), Answer.size()}, *Wanted);
      append(Bytes, seconds(Usage));
      append(Bytes, uint32_t(Answer.size()));
      Bytes.append(Answer.begin(), Answer.end());
      Told = report(Bytes);
    }
  return nullptr;
}

} // namespace mlgokit
