#include "shared/Files.h"

#include "shared/Printable.h"

#include "llvm/Config/llvm-config.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <mutex>

using namespace llvm;

namespace mlgokit {

namespace {

bool fits(Problem P, OutputKind Output) {
  switch (Output) {
  case OutputKind::EffectBytes:
  case OutputKind::Logits:
    return P == Problem::InlineSize || P == Problem::PassSelection;
  case OutputKind::ColumnLogit:
    return P == Problem::RegallocEviction;
  case OutputKind::Priority:
    return P == Problem::RegallocPriority;
  case OutputKind::Log2Factor:
    return P == Problem::RegallocWeight;
  }
  return false;
}

} // namespace

std::string numbered(const std::string &Path) {
  static std::mutex Guard;
  static StringMap<unsigned> Opened;
  std::lock_guard<std::mutex> Lock(Guard);
  const unsigned Before = Opened[Path]++;
  return Before ? Path + "." + std::to_string(Before) : Path;
}

Expected<Source> readSource(StringRef What, StringRef Path, StringRef Embedded) {
  if (Path.empty())
    return Source{nullptr, Embedded, "inside the plugin"};
  auto Read = MemoryBuffer::getFile(Path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!Read)
    return createStringError(Read.getError(), (What + " " + Path + ": expected a readable file, found: ").str() +
                                                  Read.getError().message());
  const StringRef Bytes = (*Read)->getBuffer();
  return Source{std::move(*Read), Bytes, Path};
}

Expected<Policy> loadPolicy(Problem Of, const Settings &S, const Module &M, PolicyStage Stage) {
  Expected<Source> Found = readSource("policy", S.of(Of).Policy, embeddedPolicy(Of));
  if (!Found)
    return Found.takeError();
  if (Found->Bytes.empty())
    return createStringError(inconvertibleErrorCode(),
                             "this plugin has no policy inside; name one with " + policySettingOf(Of));
  return parsePolicy(Of, Found->Bytes, Found->Origin, architectureOf(M), Stage);
}

Expected<Policy> parsePolicy(Problem Of, StringRef Bytes, StringRef Origin, StringRef Architecture, PolicyStage Stage) {
  Expected<Policy> Parsed = Policy::parse(Bytes, Origin, Architecture, Stage);
  if (Parsed && Parsed->problem() != nameOf(Of))
    return createStringError(inconvertibleErrorCode(),
                             "policy " + Origin.str() + ": expected the problem " + nameOf(Of).str() + ", found '" +
                                 printable(Parsed->problem()) + "'; give the policy to its own advisor");
  if (Parsed && !fits(Of, Parsed->output()))
    return createStringError(inconvertibleErrorCode(), "policy " + Origin.str() + ": its output is not one for " +
                                                           nameOf(Of).str() + "; train it again");
  return Parsed;
}

Expected<std::vector<size_t>> findFeatures(const Policy &P, const StringMap<size_t> &Known) {
  std::vector<size_t> Sources;
  for (const std::string &Name : P.features()) {
    auto Found = Known.find(Name);
    if (Found == Known.end())
      return createStringError(inconvertibleErrorCode(),
                               "policy " + P.origin() + ": needs the feature '" + printable(Name) + "', which LLVM " +
                                   LLVM_VERSION_STRING +
                                   " and this plugin do not supply; train a policy for this compiler");
    Sources.push_back(Found->second);
  }
  return Sources;
}

Expected<std::unique_ptr<Logger>> openLog(Problem P, const Settings &S, const std::vector<TensorSpec> &Columns,
                                          bool HasReward) {
  if (S.of(P).Log.empty())
    return nullptr;
  const std::string Path = numbered(S.of(P).Log);
  std::error_code Code;
  auto Stream = std::make_unique<raw_fd_ostream>(Path, Code);
  if (Code)
    return createStringError(Code, "training log " + Path + ": cannot be written: " + Code.message());
  return std::make_unique<Logger>(std::move(Stream), Columns, TensorSpec::createSpec<float>("reward", {1}), HasReward);
}

} // namespace mlgokit
