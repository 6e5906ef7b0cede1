#include "trials/Trials.h"

#include "shared/ByteReader.h"
#include "shared/Descriptor.h"
#include "shared/HotFunctions.h"
#include "shared/Settings.h"
#include "trials/TrialCopy.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/IR/Function.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/MemoryBuffer.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <unordered_map>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Magic("MLGOTP5\n", 8);
constexpr size_t LongestAnswer = 1 << 26;
constexpr double MostSeconds = 1e6; // what timers take, and more than any trial does

/// Trials of one function. Each departs from the best before it, at first from known decisions.
struct Series {
  double Score = 0; // of the base
  double Free = 0;  // weighted costs up to this are not penalised; NaN for those of the first trial
  Overrides Base;
  std::vector<Trial> Trials;
};

class Request {
public:
  double Seconds = 0; // of processor time for one trial
  Measures Weights{};
  double Penalty = 0;                                      // for weighted costs beyond what is free
  uint32_t Stages = 0;                                     // bits
  std::unordered_map<uint64_t, std::vector<Series>> ByKey; // a DenseMap has two keys for itself
  std::vector<std::vector<char>> Policies;                 // the bytes of policy files

  /// Whether a function has to be compiled to its end to be judged.
  bool wantsCode() const { return Weights[CodeAt] != 0 || Weights[UnwindAt] != 0; }
  double costs(const Measures &Found) const { return sum(Found, 0, CodeAt); }
  double score(const Measures &Found, double Free) const {
    return costs(Found) + sum(Found, CodeAt, Found.size()) + Penalty * std::max(0.0, costs(Found) - Free);
  }

private:
  double sum(const Measures &Found, size_t Begin, size_t End) const {
    double Sum = 0;
    for (size_t I = Begin; I < End; ++I)
      Sum += Weights[I] * Found[I];
    return Sum;
  }
};

std::optional<Request> readRequest(StringRef Bytes) {
  if (!Bytes.starts_with(Magic))
    return std::nullopt;
  ByteReader In(Bytes.drop_front(Magic.size()));
  Request R;
  uint32_t Count = 0;
  if (!In.read(&R.Seconds) || !In.read(R.Weights.data(), R.Weights.size()) || !In.read(&R.Penalty) ||
      !In.read(&R.Stages) || !In.read(&Count) || !(R.Seconds >= 0 && R.Seconds <= MostSeconds))
    return std::nullopt;
  for (uint32_t I = 0; I < Count; ++I) {
    uint64_t Key = 0;
    uint32_t Counts[4] = {};
    Series S;
    if (!In.read(&Key) || !In.read(&S.Score) || !In.read(&S.Free) || !In.read(Counts, 4) ||
        !In.read(S.Base.Evictions, Counts[0]) || !In.read(S.Base.Priorities, Counts[1]) ||
        !In.read(S.Base.Passes, Counts[2]) || !In.read(S.Trials, Counts[3]))
      return std::nullopt;
    R.ByKey[Key].push_back(std::move(S));
  }
  uint32_t PolicyCount = 0;
  if (!In.read(&PolicyCount))
    return std::nullopt;
  for (uint32_t I = 0; I < PolicyCount; ++I) {
    uint32_t Length = 0;
    std::vector<char> Policy;
    if (!In.read(&Length) || !In.read(Policy, Length))
      return std::nullopt;
    R.Policies.push_back(std::move(Policy));
  }
  for (const auto &[Key, All] : R.ByKey)
    for (const Series &S : All)
      if (any_of(S.Trials, [&](const Trial &T) { return T.ByRule >= FirstPolicy + R.Policies.size(); }))
        return std::nullopt;
  return R;
}

const std::optional<Request> &request() {
  static const std::optional<Request> Read = []() -> std::optional<Request> {
    auto File = MemoryBuffer::getFile(getenv("MLGOKIT_TRIALS"), /*IsText=*/false, /*RequiresNullTerminator=*/false);
    if (!File)
      return std::nullopt;
    return readRequest((*File)->getBuffer());
  }();
  return Read;
}

double keptPercent() {
  // The advisors have said what is wrong with them.
  static const std::optional<Settings> Read = expectedToOptional(readSettings());
  return Read ? Read->KeepHot : 0;
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
  if (std::isnan(Best.Free))
    Best.Free = R.costs(Answer->Found);
  const double Score = R.score(Answer->Found, Best.Free);
  if (Score > Best.Score || (Score == Best.Score && Answer->Made.size() >= Best.Base.size()))
    return;
  Best.Score = Score;
  Best.Base = std::move(Answer->Made);
}

double seconds(const rusage &Usage) {
  return double(Usage.ru_utime.tv_sec + Usage.ru_stime.tv_sec) +
         1e-6 * double(Usage.ru_utime.tv_usec + Usage.ru_stime.tv_usec);
}

} // namespace

StringRef triedPolicy(const Trial &T) {
  const std::optional<Request> &Wanted = request();
  if (T.ByRule < FirstPolicy || !Wanted)
    return {};
  const std::vector<char> &Bytes = Wanted->Policies[T.ByRule - FirstPolicy];
  return {Bytes.data(), Bytes.size()};
}

bool hasTrials(Stage At) {
  const char *Path = getenv("MLGOKIT_TRIALS");
  if (isTrial() || !Path || !*Path)
    return false;
  const std::optional<Request> &Wanted = request();
  // What cannot be read is said where trials would be made.
  return !Wanted || Wanted->Stages & uint32_t(At);
}

bool runTrials(const TrialSubject &Subject, function_ref<void(const Overrides &, const Trial &)> Begin) {
  LLVMContext &Ctx = Subject.Function.getContext();
  const std::optional<Request> &Wanted = request();
  if (!Wanted) {
    static std::once_flag Once;
    std::call_once(Once, [&Ctx] {
      Ctx.emitError(Twine("mlgokit: MLGOKIT_TRIALS: expected a readable file with trials, found another: ") +
                    getenv("MLGOKIT_TRIALS"));
    });
    return false;
  }
  // One that is to stay as LLVM has it is not even listed.
  if (isHot(Subject.Function, keptPercent()))
    return false;
  const auto Found = Wanted->ByKey.find(Subject.Key);
  SmallVector<char, 0> Bytes;
  const StringRef Name = Subject.Function.getName();
  uint32_t Count = 0;
  if (Found != Wanted->ByKey.end())
    for (const Series &S : Found->second)
      Count += uint32_t(S.Trials.size());
  append(Bytes, Subject.Key);
  for (uint32_t Word : {uint32_t(Subject.At), uint32_t(Name.size()), Count})
    append(Bytes, Word);
  Bytes.append(Name.begin(), Name.end());
  bool Told = report(Bytes);
  const auto NoRoom = [&Ctx] {
    Ctx.emitError("mlgokit: trials: expected room for their results, found none");
    return false;
  };
  if (!Told)
    return NoRoom();
  if (!Count)
    return false;
  for (Series S : Found->second)
    for (const Trial &T : S.Trials) {
      int Ends[2];
      const pid_t Self = getpid();
      if (!Told || pipe2(Ends, O_CLOEXEC) < 0)
        return NoRoom();
      const pid_t Child = fork();
      if (Child == 0) {
        close(Ends[0]);
        becomeTrial({Subject.Function, Subject.Code, Wanted->Seconds, Wanted->wantsCode(),
                     Wanted->Weights[ExecutedAt] != 0, Ends[1]},
                    Self);
        Begin(S.Base, T);
        return true;
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
  return !Told && NoRoom();
}

} // namespace mlgokit
