#include "shared/Policy.h"

#include "shared/PolicyTensors.h"
#include "shared/Printable.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/JSON.h"
#include "llvm/TargetParser/Triple.h"

#include <algorithm>
#include <cmath>
#include <limits>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr int64_t FormatVersion = 1, GatedFormatVersion = 2, RowsFormatVersion = 3, DoubtFormatVersion = 4,
                  ExtendedFormatVersion = 5, CostFormatVersion = 6, PartsFormatVersion = 7, RecurrentFormatVersion = 8;
constexpr unsigned DeepestJson = 16;
constexpr size_t MostTargets = 64;
constexpr size_t MostParts = 16;
constexpr int64_t MostUnits = 4096;
constexpr StringLiteral UsualTarget = "x86_64"; // of a policy that says nothing else
constexpr size_t MostFeatures = 1024;           // each takes 1 kB for its small values

Error expectShape(const Tensor &T, ArrayRef<size_t> Shape, StringRef Name, StringRef Origin) {
  if (ArrayRef<size_t>(T.Shape) == Shape)
    return Error::success();
  return failure(Origin, "tensor '" + Name + "': its shape does not fit the description");
}

/// Whether JSON has more levels than LLVM's reader, which calls itself for each, should go down; `_check_nesting` in
/// policy/store.py is the twin.
bool nestsTooDeep(StringRef Text) {
  size_t Depth = 0;
  bool InString = false;
  for (size_t I = 0; I < Text.size(); ++I) {
    const char C = Text[I];
    if (C == '"')
      InString = !InString;
    else if (InString)
      I += C == '\\';
    else if ((C == '[' || C == '{') && ++Depth > DeepestJson)
      return true;
    else if ((C == ']' || C == '}') && Depth > 0)
      --Depth;
  }
  return false;
}

Error parseGate(const json::Object &Description, ArrayRef<std::string> Features, PolicyNumbers &N, StringRef Origin) {
  const StringRef Name = Description.getString("gate_feature").value_or("");
  N.Gate = size_t(std::find(Features.begin(), Features.end(), Name) - Features.begin());
  if (*N.Gate == Features.size())
    return failure(Origin, "expected one of its features as 'gate_feature', found '" + printable(Name) + "'");
  const json::Array *Found = Description.getArray("gate_margins");
  if (!Found || Found->size() != 2)
    return failure(Origin, "expected two margins as 'gate_margins'");
  for (size_t I = 0; I < 2; ++I) {
    const json::Value &Margin = (*Found)[I];
    N.Margins[I] = Margin.getAsNull() ? std::numeric_limits<double>::infinity() : Margin.getAsNumber().value_or(-1);
    if (!(N.Margins[I] >= 0))
      return failure(Origin, "expected null or numbers that are not negative as 'gate_margins'");
  }
  return Error::success();
}

Error parseTargets(const json::Object &Description, std::vector<std::string> &Targets, StringRef Origin) {
  const json::Array *Found = Description.getArray("targets");
  if (!Found || Found->empty() || Found->size() > MostTargets)
    return failure(Origin, "expected 1 to " + Twine(MostTargets) + " names of architectures as 'targets'");
  Targets.clear();
  for (const json::Value &Name : *Found) {
    const StringRef Text = Name.getAsString().value_or("");
    if (Text.empty() || !all_of(Text, [](char C) { return isDigit(C) || isLower(C) || C == '_'; }))
      return failure(Origin, "expected names of architectures as 'targets', found '" + printable(Text) + "'");
    Targets.push_back(Text.str());
  }
  return Error::success();
}

Error parseRowLengths(const json::Object &Description, PolicyNumbers &N, StringRef Origin) {
  const json::Array *Found = Description.getArray("lengths");
  if (!Found || Found->size() != N.RowLengths.size())
    return failure(Origin, "expected " + Twine(N.RowLengths.size()) + " numbers as 'lengths'");
  for (size_t I = 0; I < N.RowLengths.size(); ++I) {
    const int64_t Length = (*Found)[I].getAsInteger().value_or(0);
    if (Length < 1 || uint64_t(Length) > N.QuantileCount)
      return failure(Origin, "expected numbers from 1 to " + Twine(N.QuantileCount) + " as 'lengths'");
    N.RowLengths[I] = size_t(Length);
  }
  return Error::success();
}

/// The architectures that a description names; those of older files that name none.
Expected<std::vector<std::string>> targetsOf(const json::Object &Description, StringRef Origin) {
  std::vector<std::string> Targets = {UsualTarget.str()};
  if (Description.getInteger("format_version").value_or(0) >= ExtendedFormatVersion && Description.get("targets"))
    if (Error E = parseTargets(Description, Targets, Origin))
      return std::move(E);
  return Targets;
}

Expected<PolicyStage> stageOf(const json::Object &Description, StringRef Origin) {
  const json::Value *Named = Description.get("stage");
  if (!Named)
    return PolicyStage::Compile;
  if (Named->getAsString() != "link" || Description.getString("problem") != "inline-size")
    return failure(Origin, "expected no 'stage' other than 'link', beside the problem inline-size alone");
  return PolicyStage::Link;
}

/// The number of the part that decides for \p Architecture in \p Stage: the first that names both, else the first that
/// names the architecture, else the first of all, whose targets then leave the code to LLVM.
Expected<size_t> findPart(const json::Array *Parts, StringRef Architecture, PolicyStage Stage, StringRef Origin) {
  if (!Parts || Parts->empty() || Parts->size() > MostParts)
    return failure(Origin, "expected 1 to " + Twine(MostParts) + " descriptions as 'parts'");
  std::optional<size_t> OfAnotherStage;
  for (size_t I = 0; I < Parts->size(); ++I) {
    const json::Object *Part = (*Parts)[I].getAsObject();
    if (!Part)
      return failure(Origin, "expected JSON objects as 'parts'");
    Expected<std::vector<std::string>> Targets = targetsOf(*Part, Origin);
    if (!Targets)
      return Targets.takeError();
    if (!is_contained(*Targets, Architecture))
      continue;
    Expected<PolicyStage> Found = stageOf(*Part, Origin);
    if (!Found)
      return Found.takeError();
    if (*Found == Stage)
      return I;
    if (!OfAnotherStage)
      OfAnotherStage = I;
  }
  return OfAnotherStage.value_or(0);
}

} // namespace

Expected<Policy> Policy::parse(StringRef Bytes, StringRef Origin, StringRef Architecture, PolicyStage Stage) {
  if (Bytes.size() < 8)
    return failure(Origin, "expected a safetensors file, found " + Twine(Bytes.size()) + " bytes");
  uint64_t HeaderSize = support::endian::read64le(Bytes.data());
  if (HeaderSize > Bytes.size() - 8)
    return failure(Origin, "expected a header of " + Twine(HeaderSize) + " bytes, found a file of " +
                               Twine(Bytes.size()) + " bytes; it is cut short or not a policy");
  StringRef Data = Bytes.drop_front(8 + HeaderSize);
  if (nestsTooDeep(Bytes.substr(8, HeaderSize)))
    return failure(Origin, "the safetensors header is JSON of more than " + Twine(DeepestJson) + " levels");
  Expected<json::Value> Parsed = json::parse(Bytes.substr(8, HeaderSize));
  if (!Parsed)
    return failure(Origin, "the safetensors header is not JSON: " + toString(Parsed.takeError()));
  const json::Object *Header = Parsed->getAsObject();
  const json::Object *Metadata = Header ? Header->getObject("__metadata__") : nullptr;
  std::optional<StringRef> Text = Metadata ? Metadata->getString("mlgokit.policy") : std::nullopt;
  if (!Text)
    return failure(Origin, "expected metadata 'mlgokit.policy', found none; this is not an mlgokit policy");
  if (nestsTooDeep(*Text))
    return failure(Origin, "its description is JSON of more than " + Twine(DeepestJson) + " levels");
  Expected<json::Value> Described = json::parse(*Text);
  if (!Described)
    return failure(Origin, "its description is not JSON: " + toString(Described.takeError()));
  const json::Object *Description = Described->getAsObject();
  if (!Description)
    return failure(Origin, "its description is not a JSON object");

  TensorFile Tensors{*Header, Data, Origin, Data.size() / sizeof(float), ""};
  const std::optional<int64_t> Version = Description->getInteger("format_version");
  if (Version == PartsFormatVersion) {
    const json::Array *Parts = Description->getArray("parts");
    Expected<size_t> Part = findPart(Parts, Architecture, Stage, Origin);
    if (!Part)
      return Part.takeError();
    Tensors.Prefix = ("part" + Twine(*Part) + ".").str();
    return parsePart(*(*Parts)[*Part].getAsObject(), Tensors, Origin);
  }
  return parsePart(*Description, Tensors, Origin);
}

Expected<Policy> Policy::parsePart(const json::Object &Description, TensorFile &Tensors, StringRef Origin) {
  const std::optional<int64_t> Version = Description.getInteger("format_version");
  if (!Version || *Version < FormatVersion || (*Version > CostFormatVersion && *Version != RecurrentFormatVersion))
    return failure(Origin, "expected format version " + Twine(FormatVersion) + " to " + Twine(RecurrentFormatVersion) +
                               ", found another; use the mlgokit that wrote it or export it again");
  Policy P;
  PolicyNumbers N;
  P.Origin = Origin.str();
  P.Problem = Description.getString("problem").value_or("").str();
  const json::Array *Names = Description.getArray("features");
  if (!Names || Names->empty())
    return failure(Origin, "expected a list of feature names, found none");
  if (Names->size() > MostFeatures)
    return failure(Origin, "expected at most " + Twine(MostFeatures) + " features, found " + Twine(Names->size()));
  for (const json::Value &Name : *Names)
    P.Features.push_back(Name.getAsString().value_or("").str());
  const size_t F = N.Features = P.Features.size();
  if (Error E = targetsOf(Description, Origin).moveInto(P.Targets))
    return std::move(E);
  if (Error E = stageOf(Description, Origin).moveInto(P.Stage))
    return std::move(E);

  StringRef Normaliser = Description.getString("normaliser").value_or("");
  size_t Width = F;
  if (Normaliser == "signed-log") {
    N.Normaliser = NormaliserKind::SignedLog;
    N.Clip = Description.getNumber("clip").value_or(0);
    if (!(N.Clip > 0))
      return failure(Origin, "expected a positive number as 'clip'");
    for (auto [Name, Target] : {std::pair<StringRef, std::vector<double> *>("normaliser.mean", &N.Mean),
                                std::pair<StringRef, std::vector<double> *>("normaliser.scale", &N.Scale)}) {
      Expected<Tensor> T = Tensors.read(Name);
      if (!T)
        return T.takeError();
      if (Error E = expectShape(*T, {F}, Name, Origin))
        return std::move(E);
      Target->assign(T->Values.begin(), T->Values.end());
    }
  } else if (Normaliser == "quantile") {
    N.Normaliser = NormaliserKind::Quantile;
    Expected<Tensor> T = Tensors.read("normaliser.boundaries");
    if (!T)
      return T.takeError();
    if (T->Shape.size() != 2 || T->Shape[0] != F)
      return failure(Origin, "tensor 'normaliser.boundaries': its shape does not fit the description");
    N.QuantileCount = T->Shape[1];
    N.Boundaries = std::move(T->Values);
    for (size_t I = 0; I < F; ++I)
      if (!std::is_sorted(N.Boundaries.begin() + I * N.QuantileCount, N.Boundaries.begin() + (I + 1) * N.QuantileCount))
        return failure(Origin, "tensor 'normaliser.boundaries': expected sorted rows");
    N.RowLengths.assign(F, N.QuantileCount);
    if (Version == RowsFormatVersion || (Version >= DoubtFormatVersion && Description.get("lengths")))
      if (Error E = parseRowLengths(Description, N, Origin))
        return std::move(E);
    if (Version >= ExtendedFormatVersion && Description.get("nan")) {
      N.Nan = Description.getNumber("nan").value_or(std::numeric_limits<double>::infinity());
      if (!(std::fabs(N.Nan) <= std::numeric_limits<float>::max()))
        return failure(Origin, "expected a number that a float holds as 'nan'");
    }
    Width = 2 * F;
  } else {
    return failure(Origin, "expected 'signed-log' or 'quantile' as normaliser, found '" + printable(Normaliser) + "'");
  }

  StringRef Output = Description.getString("output").value_or("");
  size_t LastWidth = 1;
  if (Output == "effect-bytes") {
    N.Output = OutputKind::EffectBytes;
    N.BytesPerUnit = Description.getNumber("bytes_per_unit").value_or(0);
    if (!(N.BytesPerUnit > 0))
      return failure(Origin, "expected a positive number as 'bytes_per_unit'");
    if (const json::Value *Caution = Description.get("caution"); Caution && Caution->getAsNumber() != 0)
      return failure(Origin, "expected no 'caution' other than 0 beside effects, where it leaned to not inlining; "
                             "train it again, with 'doubt'");
    if (Version >= DoubtFormatVersion) {
      N.Doubt = Description.getNumber("doubt").value_or(-1);
      if (!(N.Doubt >= 0) || std::isinf(N.Doubt))
        return failure(Origin, "expected a number that is not negative as 'doubt'");
    }
    if (Version == GatedFormatVersion || (Version != FormatVersion && Description.get("gate_feature")))
      if (Error E = parseGate(Description, P.Features, N, Origin))
        return std::move(E);
  } else if (Output == "logits") {
    N.Output = OutputKind::Logits;
    LastWidth = 2;
  } else if (Output == "column-logit") {
    N.Output = OutputKind::ColumnLogit;
    P.Mask = Description.getString("mask").value_or("").str();
    N.Caution = Description.getNumber("caution").value_or(0);
    if (P.Mask.empty())
      return failure(Origin, "expected the name of a feature as 'mask'");
  } else if (Output == "priority" || Output == "log2-factor") {
    N.Output = Output == "priority" ? OutputKind::Priority : OutputKind::Log2Factor;
    if (Version == GatedFormatVersion || (Version != FormatVersion && Description.get("gate_feature")))
      if (Error E = parseGate(Description, P.Features, N, Origin))
        return std::move(E);
  } else {
    return failure(Origin, "expected 'effect-bytes', 'logits', 'column-logit', 'priority' or 'log2-factor' as output, "
                           "found '" +
                               printable(Output) + "'");
  }
  if (Version == CostFormatVersion) {
    const int64_t Cost = Description.getInteger("csr_first_time_cost").value_or(0);
    if (N.Output != OutputKind::Log2Factor || Cost < 1 || Cost > std::numeric_limits<uint32_t>::max())
      return failure(Origin, "expected a whole number from 1 to 4294967295 as 'csr_first_time_cost', beside "
                             "'log2-factor' alone");
    P.CsrFirstTimeCost = unsigned(Cost);
  }

  const size_t Members = size_t(Description.getInteger("members").value_or(0));
  const int64_t LayerCount = Description.getInteger("layers").value_or(0);
  if (Members < 1 || Members > 1024 || LayerCount < 1 || LayerCount > 64)
    return failure(Origin, "expected 1 to 1024 members and 1 to 64 layers");
  if (Version == RecurrentFormatVersion) {
    const int64_t Units = Description.getInteger("recurrent").value_or(0);
    if (Units < 1 || Units > MostUnits || LayerCount < 3 || N.Output != OutputKind::Logits ||
        P.Problem != "inline-size")
      return failure(Origin, "expected 1 to " + Twine(MostUnits) +
                                 " units as 'recurrent', in at least 3 layers with 'logits' for inline-size");
    N.Recurrent = size_t(Units);
  }
  std::vector<Layer> Layers;
  for (int64_t I = 0; I < LayerCount; ++I) {
    const std::string Prefix = ("layer" + Twine(I)).str();
    Expected<Tensor> Weight = Tensors.read(Prefix + ".weight");
    if (!Weight)
      return Weight.takeError();
    if (Weight->Shape.size() != 3)
      return failure(Origin, "tensor '" + Prefix + ".weight': expected three dimensions");
    const bool IsLstm = N.Recurrent && I + 2 == LayerCount;
    const size_t Outputs = I + 1 == LayerCount ? LastWidth : IsLstm ? 4 * N.Recurrent : Weight->Shape[2];
    const size_t Inputs = IsLstm ? Width + N.Recurrent : Width;
    if (Error E = expectShape(*Weight, {Members, Inputs, Outputs}, Prefix + ".weight", Origin))
      return std::move(E);
    Expected<Tensor> Bias = Tensors.read(Prefix + ".bias");
    if (!Bias)
      return Bias.takeError();
    if (Error E = expectShape(*Bias, {Members, Outputs}, Prefix + ".bias", Origin))
      return std::move(E);
    Layers.push_back({Inputs, Outputs, std::move(Weight->Values), std::move(Bias->Values)});
    Width = IsLstm ? N.Recurrent : Outputs;
  }
  N.Members = Members;
  N.Layers = std::move(Layers);
  P.Numbers = Evaluator(std::move(N));
  return P;
}

StringRef architectureOf(const Module &M) {
  const Triple Target(M.getTargetTriple());
  if (Target.getArch() != Triple::arm && Target.getArch() != Triple::thumb)
    return Triple::getArchTypeName(Target.getArch());
  const Triple::SubArchType Core = Target.getSubArch();
  return Core == Triple::ARMSubArch_v6m || Core == Triple::ARMSubArch_v8m_baseline ? "thumbv6m" : "arm";
}

bool Policy::isFor(const Module &M) const { return is_contained(Targets, architectureOf(M)); }

double Policy::preference(ArrayRef<double> Values, function_ref<bool()> Heuristic) {
  if (const std::optional<double> Found = Numbers.preference(Values))
    return *Found;
  return Heuristic() ? HeuristicPreference : -HeuristicPreference;
}

} // namespace mlgokit
