#include "regalloc/Trials.h"

#include "regalloc/TrialCopy.h"
#include "shared/ByteReader.h"
#include "shared/Descriptor.h"

#include "llvm/IR/Function.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <unordered_map>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGOTP3\n", 8);
constexpr size_t LongestAnswer = 1 << 26;
constexpr double MostSeconds = 1e6; // what timers take, and more than any trial does

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
  Overrides Base;
  std::vector<Trial> Trials;
};

struct Request {
  double Seconds = 0; // of processor time for one trial
  Measures Weights{};
  double Penalty = 0;                                      // for weighted costs beyond what is free
  std::unordered_map<uint64_t, std::vector<Series>> ByKey; // a DenseMap has two keys for itself
  /// Whether a function has to be compiled to its end to be judged.
  bool wantsCode() const { return Weights[CodeAt] != 0 || Weights[UnwindAt] != 0; }
  double score(const Measures &Found, double Free) const {
    double Costs = 0, Rest = 0;
    for (size_t I = 0; I < Found.size(); ++I)
      (I < CodeAt ? Costs : Rest) += Weights[I] * Found[I];
    return Costs + Rest + Penalty * std::max(0.0, Costs - Free);
  }
};

std::optional<Request> readRequest(StringRef Bytes) {
  if (!Bytes.starts_with(Magic))
    return std::nullopt;
  ByteReader In(Bytes.drop_front(Magic.size()));
  Request R;
  uint32_t Count = 0;
  if (!In.read(&R.Seconds) || !In.read(R.Weights.data(), R.Weights.size()) || !In.read(&R.Penalty) ||
      !In.read(&Count) || !(R.Seconds >= 0 && R.Seconds <= MostSeconds))
    return std::nullopt;
  for (uint32_t I = 0; I < Count; ++I) {
    uint64_t Key = 0;
    uint32_t Counts[3] = {};
    Series S;
    if (!In.read(&Key) || !In.read(&S.Score) || !In.read(&S.Free) || !In.read(Counts, 3) ||
        !In.read(S.Base.Evictions, Counts[0]) || !In.read(S.Base.Priorities, Counts[1]) ||
        !In.read(S.Trials, Counts[2]))
      return std::nullopt;
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
  return writeAll(File, Bytes);
}

template <class T> void append(SmallVectorImpl<char> &Bytes, const T &Value) {
  const char *Begin = reinterpret_cast<const char *>(&Value);
  Bytes.append(Begin, Begin + sizeof Value);
}

/// Lets the trials that follow depart from this one, if it is better, or as good by fewer decisions.
void adopt(Series &Best, StringRef Bytes, const Request &R) {
  std::optional<TrialAnswer> Answer = readAnswer(Bytes);
  if (!Answer)
    return;
  const double Score = R.score(Answer->Found, Best.Free);
  const auto SizeOf = [](const Overrides &O) { return O.Evictions.size() + O.Priorities.size(); };
  if (Score > Best.Score || (Score == Best.Score && SizeOf(Answer->Made) >= SizeOf(Best.Base)))
    return;
  Best.Score = Score;
  Best.Base = std::move(Answer->Made);
}

double seconds(const rusage &Usage) {
  return double(Usage.ru_utime.tv_sec + Usage.ru_stime.tv_sec) +
         1e-6 * double(Usage.ru_utime.tv_usec + Usage.ru_stime.tv_usec);
}

} // namespace

bool hasTrials() {
  const char *Path = getenv("MLGOKIT_TRIALS");
  return !isTrial() && Path && *Path;
}

std::unique_ptr<FunctionPlan> runTrials(const MachineFunction &MF, const FunctionShape &Shape) {
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
  const auto NoRoom = [&Ctx] {
    Ctx.emitError("mlgokit: trials of allocations: expected room for their results, found none");
    return nullptr;
  };
  if (!Told)
    return NoRoom();
  if (!Count)
    return nullptr;
  for (Series S : Found->second)
    for (const Trial &T : S.Trials) {
      int Ends[2];
      const pid_t Self = getpid();
      if (!Told || pipe2(Ends, O_CLOEXEC) < 0)
        return NoRoom();
      const pid_t Child = fork();
      if (Child == 0) {
        close(Ends[0]);
        std::unique_ptr<FunctionPlan> P(new FunctionPlan{Shape, OverridePlan(S.Base.Evictions, T.EvictionFlips, T.Seed),
                                                         OverridePlan(S.Base.Priorities, T.PriorityFlips, ~T.Seed),
                                                         T.ByRule != 0});
        becomeTrial({MF, *P, Wanted->Seconds, Wanted->wantsCode(), Ends[1]}, Self);
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
  return Told ? nullptr : NoRoom();
}

} // namespace mlgokit
