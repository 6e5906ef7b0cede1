// One input of libFuzzer against one of the plugin's readers, which MLGOKIT_FUZZ_READER names; for fuzz_plugin.py.
//
// What a reader takes is also used as the plugin uses it. A crash, a report of a sanitizer, or a broken promise of
// EXPECT is a finding. Sources are included where what reads is of no interest to other files.
#include "trials/Trials.cpp"

#include "inliner/DecisionTable.h"
#include "inliner/Features.h"
#include "inliner/SiteKeys.h"
#include "reuse/Digests.h"
#include "shared/Files.h"
#include "shared/Policy.h"
#include "shared/Settings.h"
#include "trials/OverrideTable.h"

#include "llvm/AsmParser/Parser.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/SourceMgr.h"

#include <cmath>
#include <cstdio>
#include <random>
#include <string>

#include <sys/mman.h>

using namespace llvm;
using namespace mlgokit;

extern "C" size_t LLVMFuzzerMutate(uint8_t *Data, size_t Size, size_t MaxSize);

namespace {

#define EXPECT(CONDITION)                                                                                              \
  do                                                                                                                   \
    if (!(CONDITION)) {                                                                                                \
      std::fprintf(stderr, "broken promise: %s\n", #CONDITION);                                                        \
      __builtin_trap();                                                                                                \
    }                                                                                                                  \
  while (false)

constexpr const char *Calls = R"(
declare void @outside()
define internal void @local(i32 %x) { call void @outside() ret void }
define i32 @first(i32 %x) { call void @local(i32 %x) call void @local(i32 1) ret i32 %x }
define i32 @second(i32 %x) { %y = call i32 @first(i32 %x) call void @local(i32 %y) ret i32 %y }
)";

Module &someModule() {
  static LLVMContext Context;
  static SMDiagnostic Trouble;
  static std::unique_ptr<Module> M = parseAssemblyString(Calls, Trouble, Context);
  EXPECT(M);
  return *M;
}

/// Whether there was an error; its sentence has nothing that a terminal obeys.
bool failed(Error E) {
  if (!E)
    return false;
  for (const char C : toString(std::move(E)))
    EXPECT(C == '\n' || (static_cast<unsigned char>(C) >= 0x20 && C != 0x7f));
  return true;
}

void readPolicy(StringRef Bytes) {
  Expected<Policy> P = Policy::parse(Bytes, "x");
  if (failed(P.takeError()))
    return;
  const double Numbers[] = {0, -0.0, 1, -1, 255, 256, -257, 1e18, -1e300, INFINITY, -INFINITY, NAN, 0.5};
  StringMap<size_t> Known;
  failed(findFeatures(*P, Known).takeError());
  std::vector<double> Values(P->features().size());
  for (size_t Round = 0; Round < 3; ++Round) {
    for (size_t I = 0; I < Values.size(); ++I)
      Values[I] = Numbers[(I + 5 * Round) % std::size(Numbers)];
    switch (P->output()) {
    case OutputKind::EffectBytes:
    case OutputKind::Logits:
      EXPECT(!std::isnan(P->preference(Values, [] { return true; })));
      break;
    case OutputKind::ColumnLogit:
      EXPECT(std::isfinite(P->columnLogit(Values)));
      break;
    case OutputKind::Priority:
      EXPECT(!std::isnan(P->unit(Values)));
      break;
    }
  }
}

void readDecisions(StringRef Bytes) {
  Expected<DecisionTable> T = DecisionTable::parse(Bytes, "x");
  if (failed(T.takeError()))
    return;
  if (const DecisionTable::Entry *E = T->find(someModule(), /*AtLink=*/true))
    for (const uint64_t Key : E->Keys)
      EXPECT(Key < 2 || DecisionTable::decision(*E, Key & ~uint64_t(1)).has_value());
}

/// The answers to a few questions about each live range, as the advisors ask for them.
void answer(const Overrides &O, double Flips, uint64_t Seed) {
  OverridePlan Evictions(O.Evictions, Flips, Seed), Priorities(O.Priorities, Flips, ~Seed), Passes(O.Passes, 0, 0);
  const int64_t Mask[] = {1, 0, 1, 1, 0, 1};
  for (uint32_t Range : {0u, 1u, 2u, 7u, 0x7fffffffu})
    for (int Again = 0; Again < 4; ++Again) {
      if (std::optional<PlannedOverride> Wanted = Evictions.next(Range)) {
        const size_t Column = Evictions.column(*Wanted, Mask, 2);
        EXPECT(Column < std::size(Mask) && Mask[Column]);
      }
      Priorities.next(Range);
      Passes.next(Range);
    }
}

void readOverrides(const TableKind &Kind, StringRef Bytes) {
  Expected<OverrideTable> T = OverrideTable::parse(Kind, Bytes, "x");
  if (failed(T.takeError()))
    return;
  for (uint64_t Key : {uint64_t(0), uint64_t(7), uint64_t(9), ~uint64_t(0)})
    if (const Overrides *O = T->find(Key))
      answer(*O, 0, Key);
}

void readAllocations(StringRef Bytes) { readOverrides(AllocationKind, Bytes); }

void readPasses(StringRef Bytes) { readOverrides(mlgokit::PassKind, Bytes); }

void readTrials(StringRef Bytes) {
  std::optional<Request> R = readRequest(Bytes);
  if (!R)
    return;
  // What a copy is given as its limits: times that a timer takes.
  EXPECT(R->Seconds >= 0 && R->Seconds <= 1e6);
  for (auto &[Key, All] : R->ByKey)
    for (Series &S : All) {
      (void)R->score({1, 2, 3, 4, 5, 6, 7, 8, 9}, S.Free);
      adopt(S, Bytes.take_back(128), *R);
      for (const Trial &T : S.Trials)
        answer(S.Base, T.EvictionFlips, T.Seed);
    }
}

void readTrialAnswer(StringRef Bytes) {
  if (std::optional<TrialAnswer> A = readAnswer(Bytes))
    answer(A->Made, 0.5, 1);
}

/// A path to a file in memory with these bytes.
const char *inMemory(StringRef Bytes) {
  static const int File = memfd_create("input", 0);
  static const std::string Path = "/proc/self/fd/" + std::to_string(File);
  EXPECT(ftruncate(File, 0) == 0 && pwrite(File, Bytes.data(), Bytes.size(), 0) == ssize_t(Bytes.size()));
  return Path.c_str();
}

void readKnownFunctions(StringRef Bytes) { failed(readDigests("known functions", inMemory(Bytes)).takeError()); }

/// Variables of the environment, each NAME=VALUE and a zero byte.
void readEnvironment(StringRef Bytes) {
  SmallVector<StringRef, 16> Lines;
  std::vector<std::string> Names;
  Bytes.split(Lines, '\0');
  for (StringRef Line : Lines) {
    const auto [Name, Value] = Line.split('=');
    if (!Name.starts_with("MLGOKIT_") || setenv(Name.str().c_str(), Value.str().c_str(), 1) != 0)
      continue;
    Names.push_back(Name.str());
  }
  if (Expected<Settings> S = readSettings()) {
    EXPECT(S->FlipProbability >= 0 && S->FlipProbability <= 1 && S->Temperature >= 0 && std::isfinite(S->Temperature));
    (void)S->hasDecisions();
    (void)S->hasAllocations();
    (void)S->hasPasses();
  } else {
    failed(S.takeError());
  }
  for (const std::string &Name : Names)
    unsetenv(Name.c_str());
}

struct Reader {
  const char *Name;
  void (*Read)(StringRef);
};
constexpr Reader Readers[] = {{"policy", readPolicy},
                              {"decision table", readDecisions},
                              {"allocation table", readAllocations},
                              {"pass table", readPasses},
                              {"trials", readTrials},
                              {"answer of a trial", readTrialAnswer},
                              {"known functions", readKnownFunctions},
                              {"environment", readEnvironment}};
const Reader *Chosen = nullptr;

} // namespace

extern "C" int LLVMFuzzerInitialize(int *, char ***) {
  const char *Wanted = std::getenv("MLGOKIT_FUZZ_READER");
  for (const Reader &R : Readers)
    if (Wanted && StringRef(Wanted) == R.Name)
      Chosen = &R;
  if (!Chosen)
    std::fprintf(stderr, "MLGOKIT_FUZZ_READER: expected the name of a reader, found %s\n", Wanted ? Wanted : "none");
  return Chosen ? 0 : 1;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *Data, size_t Size) {
  if (!Chosen)
    std::exit(2);
  Chosen->Read(StringRef(reinterpret_cast<const char *>(Data), Size));
  return 0;
}

/// A policy's header has its length before it, and numbers after it: half of the mutations leave the frame whole.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *Data, size_t Size, size_t MaxSize, unsigned Seed) {
  std::minstd_rand Draw(Seed);
  const uint64_t Length = Size < 8 ? ~uint64_t(0) : support::endian::read64le(Data);
  if (!Chosen || Chosen->Read != readPolicy || Size < 8 || Length > Size - 8 || MaxSize < Size + 64 || Draw() % 2)
    return LLVMFuzzerMutate(Data, Size, MaxSize);
  std::vector<uint8_t> Header(Data + 8, Data + 8 + Length), Numbers(Data + 8 + Length, Data + Size);
  std::vector<uint8_t> &Changed = Draw() % 4 ? Header : Numbers;
  const size_t Before = Changed.size();
  Changed.resize(Before + MaxSize - Size);
  Changed.resize(LLVMFuzzerMutate(Changed.data(), Before, Changed.size()));
  support::endian::write64le(Data, Header.size());
  std::copy(Header.begin(), Header.end(), Data + 8);
  std::copy(Numbers.begin(), Numbers.end(), Data + 8 + Header.size());
  return 8 + Header.size() + Numbers.size();
}
