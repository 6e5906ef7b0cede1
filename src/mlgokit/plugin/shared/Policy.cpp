#include "shared/Policy.h"

#include "shared/Printable.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr int64_t FormatVersion = 1, GatedFormatVersion = 2, RowsFormatVersion = 3, DoubtFormatVersion = 4;
constexpr double HeuristicPreference = 2;
constexpr int64_t SmallValue = 256;
constexpr int16_t NotAnInput = std::numeric_limits<int16_t>::min();
constexpr size_t MostElements = size_t(1) << 26;
constexpr unsigned DeepestJson = 16;
constexpr size_t MostFeatures = 1024; // each takes 1 kB for its small values

Error failure(StringRef Origin, const Twine &What) {
  return createStringError(inconvertibleErrorCode(), Twine("policy " + Origin + ": " + What).str());
}

/// One tensor of a safetensors file: always little-endian 32-bit floats here.
struct Tensor {
  std::vector<size_t> Shape;
  std::vector<float> Values;
};

/// The tensors of a file. No two share numbers, so that a file gives no more than it has.
struct TensorFile {
  const json::Object &Header;
  StringRef Data, Origin;
  size_t Unread; // numbers
  Expected<Tensor> read(StringRef Name);
};

Expected<Tensor> TensorFile::read(StringRef Name) {
  const json::Object *Entry = Header.getObject(Name);
  if (!Entry)
    return failure(Origin, "expected tensor '" + Name + "', found none; export the policy again");
  const json::Array *Shape = Entry->getArray("shape");
  const json::Array *Offsets = Entry->getArray("data_offsets");
  if (Entry->getString("dtype") != "F32" || !Shape || !Offsets || Offsets->size() != 2)
    return failure(Origin, "tensor '" + Name + "': expected dtype F32 with shape and data_offsets");
  Tensor Result;
  size_t Elements = 1;
  for (const json::Value &Dimension : *Shape) {
    std::optional<int64_t> Size = Dimension.getAsInteger();
    if (!Size || *Size <= 0 || size_t(*Size) > MostElements || Elements * size_t(*Size) > MostElements)
      return failure(Origin, "tensor '" + Name + "': impossible shape");
    Result.Shape.push_back(size_t(*Size));
    Elements *= size_t(*Size);
  }
  std::optional<int64_t> Begin = (*Offsets)[0].getAsInteger(), End = (*Offsets)[1].getAsInteger();
  if (!Begin || !End || *Begin < 0 || *End < *Begin || size_t(*End) > Data.size() ||
      size_t(*End - *Begin) != Elements * sizeof(float))
    return failure(Origin, "tensor '" + Name + "': data offsets do not fit its shape or the file");
  if (Elements > Unread)
    return failure(Origin, "tensor '" + Name + "': it shares its numbers with another");
  Unread -= Elements;
  Result.Values.resize(Elements);
  for (size_t I = 0; I < Elements; ++I) {
    const uint32_t Bits = support::endian::read32le(Data.data() + *Begin + I * sizeof(float));
    std::memcpy(&Result.Values[I], &Bits, sizeof(float));
    if (!std::isfinite(Result.Values[I]))
      return failure(Origin, "tensor '" + Name + "': expected finite numbers only");
  }
  return Result;
}

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

/// A raw value as the normalisers take it.
double bounded(double V) {
  constexpr double Most = std::numeric_limits<float>::max();
  // The sum turns -0 into 0.
  return std::isnan(V) ? 0 : std::clamp(V, -Most, Most) + 0.0;
}

} // namespace

Expected<Policy> Policy::parse(StringRef Bytes, StringRef Origin) {
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

  const std::optional<int64_t> Version = Description->getInteger("format_version");
  if (!Version || *Version < FormatVersion || *Version > DoubtFormatVersion)
    return failure(Origin, "expected format version " + Twine(FormatVersion) + " to " + Twine(DoubtFormatVersion) +
                               ", found another; use the mlgokit that wrote it or export it again");
  TensorFile Tensors{*Header, Data, Origin, Data.size() / sizeof(float)};
  Policy P;
  P.Origin = Origin.str();
  P.Problem = Description->getString("problem").value_or("").str();
  const json::Array *Names = Description->getArray("features");
  if (!Names || Names->empty())
    return failure(Origin, "expected a list of feature names, found none");
  if (Names->size() > MostFeatures)
    return failure(Origin, "expected at most " + Twine(MostFeatures) + " features, found " + Twine(Names->size()));
  for (const json::Value &Name : *Names)
    P.Features.push_back(Name.getAsString().value_or("").str());
  const size_t F = P.Features.size();

  StringRef Normaliser = Description->getString("normaliser").value_or("");
  size_t Width = F;
  if (Normaliser == "signed-log") {
    P.Normaliser = NormaliserKind::SignedLog;
    P.Clip = Description->getNumber("clip").value_or(0);
    if (!(P.Clip > 0))
      return failure(Origin, "expected a positive number as 'clip'");
    for (auto [Name, Target] : {std::pair<StringRef, std::vector<double> *>("normaliser.mean", &P.Mean),
                                std::pair<StringRef, std::vector<double> *>("normaliser.scale", &P.Scale)}) {
      Expected<Tensor> T = Tensors.read(Name);
      if (!T)
        return T.takeError();
      if (Error E = expectShape(*T, {F}, Name, Origin))
        return std::move(E);
      Target->assign(T->Values.begin(), T->Values.end());
    }
  } else if (Normaliser == "quantile") {
    P.Normaliser = NormaliserKind::Quantile;
    Expected<Tensor> T = Tensors.read("normaliser.boundaries");
    if (!T)
      return T.takeError();
    if (T->Shape.size() != 2 || T->Shape[0] != F)
      return failure(Origin, "tensor 'normaliser.boundaries': its shape does not fit the description");
    P.QuantileCount = T->Shape[1];
    P.Boundaries = std::move(T->Values);
    for (size_t I = 0; I < F; ++I)
      if (!std::is_sorted(P.Boundaries.begin() + I * P.QuantileCount, P.Boundaries.begin() + (I + 1) * P.QuantileCount))
        return failure(Origin, "tensor 'normaliser.boundaries': expected sorted rows");
    P.RowLengths.assign(F, P.QuantileCount);
    if (Version == RowsFormatVersion || (Version == DoubtFormatVersion && Description->get("lengths")))
      if (Error E = P.parseRowLengths(*Description))
        return std::move(E);
    Width = 2 * F;
  } else {
    return failure(Origin, "expected 'signed-log' or 'quantile' as normaliser, found '" + printable(Normaliser) + "'");
  }

  StringRef Output = Description->getString("output").value_or("");
  size_t LastWidth = 1;
  if (Output == "effect-bytes") {
    P.Output = OutputKind::EffectBytes;
    P.BytesPerUnit = Description->getNumber("bytes_per_unit").value_or(0);
    if (!(P.BytesPerUnit > 0))
      return failure(Origin, "expected a positive number as 'bytes_per_unit'");
    if (const json::Value *Caution = Description->get("caution"); Caution && Caution->getAsNumber() != 0)
      return failure(Origin, "expected no 'caution' other than 0 beside effects, where it leaned to not inlining; "
                             "train it again, with 'doubt'");
    if (Version == DoubtFormatVersion) {
      P.Doubt = Description->getNumber("doubt").value_or(-1);
      if (!(P.Doubt >= 0) || std::isinf(P.Doubt))
        return failure(Origin, "expected a number that is not negative as 'doubt'");
    }
    if (Version == GatedFormatVersion || (Version != FormatVersion && Description->get("gate_feature")))
      if (Error E = P.parseGate(*Description))
        return std::move(E);
  } else if (Output == "logits") {
    P.Output = OutputKind::Logits;
    LastWidth = 2;
  } else if (Output == "column-logit") {
    P.Output = OutputKind::ColumnLogit;
    P.Mask = Description->getString("mask").value_or("").str();
    P.Caution = Description->getNumber("caution").value_or(0);
    if (P.Mask.empty())
      return failure(Origin, "expected the name of a feature as 'mask'");
  } else if (Output == "priority") {
    P.Output = OutputKind::Priority;
  } else {
    return failure(Origin, "expected 'effect-bytes', 'logits', 'column-logit' or 'priority' as output, found '" +
                               printable(Output) + "'");
  }

  const size_t Members = size_t(Description->getInteger("members").value_or(0));
  const int64_t LayerCount = Description->getInteger("layers").value_or(0);
  if (Members < 1 || Members > 1024 || LayerCount < 1 || LayerCount > 64)
    return failure(Origin, "expected 1 to 1024 members and 1 to 64 layers");
  std::vector<Layer> Layers;
  for (int64_t I = 0; I < LayerCount; ++I) {
    const std::string Prefix = ("layer" + Twine(I)).str();
    Expected<Tensor> Weight = Tensors.read(Prefix + ".weight");
    if (!Weight)
      return Weight.takeError();
    if (Weight->Shape.size() != 3)
      return failure(Origin, "tensor '" + Prefix + ".weight': expected three dimensions");
    const size_t Outputs = I + 1 == LayerCount ? LastWidth : Weight->Shape[2];
    if (Error E = expectShape(*Weight, {Members, Width, Outputs}, Prefix + ".weight", Origin))
      return std::move(E);
    Expected<Tensor> Bias = Tensors.read(Prefix + ".bias");
    if (!Bias)
      return Bias.takeError();
    if (Error E = expectShape(*Bias, {Members, Outputs}, Prefix + ".bias", Origin))
      return std::move(E);
    Layers.push_back({Width, Outputs, std::move(Weight->Values), std::move(Bias->Values)});
    Width = Outputs;
  }
  P.Scaled = InputScale(P.largestInput());
  P.Networks = Network(Members, std::move(Layers), P.Scaled);
  P.Input.resize(P.Networks.inputs());

  if (P.Normaliser == NormaliserKind::SignedLog) {
    P.SmallValues.assign(F * 2 * SmallValue, NotAnInput);
    P.LastLarge.assign(F, std::numeric_limits<double>::quiet_NaN());
    P.LastLargeInput.assign(F, 0);
  }
  return P;
}

Error Policy::parseGate(const json::Object &Description) {
  const StringRef Name = Description.getString("gate_feature").value_or("");
  Gate = size_t(std::find(Features.begin(), Features.end(), Name) - Features.begin());
  if (*Gate == Features.size())
    return failure(Origin, "expected one of its features as 'gate_feature', found '" + printable(Name) + "'");
  const json::Array *Found = Description.getArray("gate_margins");
  if (!Found || Found->size() != 2)
    return failure(Origin, "expected two margins as 'gate_margins'");
  for (size_t I = 0; I < 2; ++I) {
    const json::Value &Margin = (*Found)[I];
    Margins[I] = Margin.getAsNull() ? std::numeric_limits<double>::infinity() : Margin.getAsNumber().value_or(-1);
    if (!(Margins[I] >= 0))
      return failure(Origin, "expected null or numbers that are not negative as 'gate_margins'");
  }
  return Error::success();
}

Error Policy::parseRowLengths(const json::Object &Description) {
  const json::Array *Found = Description.getArray("lengths");
  if (!Found || Found->size() != RowLengths.size())
    return failure(Origin, "expected " + Twine(RowLengths.size()) + " numbers as 'lengths'");
  for (size_t I = 0; I < RowLengths.size(); ++I) {
    const int64_t Length = (*Found)[I].getAsInteger().value_or(0);
    if (Length < 1 || uint64_t(Length) > QuantileCount)
      return failure(Origin, "expected numbers from 1 to " + Twine(QuantileCount) + " as 'lengths'");
    RowLengths[I] = size_t(Length);
  }
  return Error::success();
}

/// What no normalised value is beyond: the clip, or what the largest float becomes.
double Policy::largestInput() const {
  if (Normaliser == NormaliserKind::Quantile)
    return 1;
  constexpr double LargestLog = 89;
  double Farthest = 0;
  for (size_t I = 0; I < Mean.size(); ++I)
    Farthest = std::max(Farthest, (LargestLog + std::fabs(Mean[I])) * std::fabs(Scale[I]));
  return std::min(Clip, Farthest);
}

void Policy::normalise(ArrayRef<double> Values) {
  if (Normaliser == NormaliserKind::Quantile) {
    for (size_t I = 0; I < Values.size(); ++I) {
      const float *Row = Boundaries.data() + I * QuantileCount;
      const size_t Length = RowLengths[I];
      const double Rank = double(std::upper_bound(Row, Row + Length, float(bounded(Values[I]))) - Row) / double(Length);
      Input[2 * I] = Scaled(float(Rank));
      Input[2 * I + 1] = Scaled(float(Rank * Rank));
    }
    return;
  }
  auto SignedLog = [&](size_t I) {
    const double V = bounded(Values[I]);
    const double Magnitude = std::log1p(std::fabs(V));
    const double Signed = V < 0 ? -Magnitude : Magnitude;
    return Scaled(float(std::clamp((Signed - Mean[I]) * Scale[I], -Clip, Clip)));
  };
  for (size_t I = 0; I < Values.size(); ++I) {
    const double V = Values[I];
    if (V >= -SmallValue && V < SmallValue && V == double(int32_t(V))) {
      int16_t &Known = SmallValues[size_t((2 * int64_t(I) + 1) * SmallValue + int64_t(V))];
      if (Known == NotAnInput)
        Known = SignedLog(I);
      Input[I] = Known;
    } else {
      if (V != LastLarge[I]) {
        LastLarge[I] = V;
        LastLargeInput[I] = SignedLog(I);
      }
      Input[I] = LastLargeInput[I];
    }
  }
}

std::pair<double, double> Policy::summary(ArrayRef<double> Values) {
  normalise(Values);
  const ArrayRef<float> Outputs = Networks.evaluate(Input);
  const size_t Members = Networks.members(), Width = Outputs.size() / Members;
  double Sum = 0, SumOfSquares = 0;
  for (size_t K = 0; K < Members; ++K) {
    const float *Out = Outputs.data() + K * Width;
    const double Answer = Output == OutputKind::Logits ? double(Out[1]) - double(Out[0]) : double(Out[0]);
    Sum += Answer;
    SumOfSquares += Answer * Answer;
  }
  const double Average = Sum / double(Members);
  const double Variance = SumOfSquares / double(Members) - Average * Average;
  return {Average, std::sqrt(Variance > 0 ? Variance : 0)};
}

double Policy::preference(ArrayRef<double> Values, function_ref<bool()> Heuristic) {
  const double Margin = Gate ? Margins[Values[*Gate] != 0] : 0;
  auto Left = [&] { return Heuristic() ? HeuristicPreference : -HeuristicPreference; };
  if (std::isinf(Margin))
    return Left();
  const auto [Average, Deviation] = summary(Values);
  if (Output == OutputKind::Logits)
    return std::isnan(Average) ? 0 : Average;
  if ((Gate || Doubt > 0) && !(std::fabs(Average) > Margin + Doubt * Deviation))
    return Left();
  return std::isnan(Average) ? 0 : -Average / BytesPerUnit;
}

double Policy::columnLogit(ArrayRef<double> Values) {
  constexpr double Bound = 1e30;
  const auto [Average, Deviation] = summary(Values);
  const double Found = Average - Caution * Deviation;
  return std::isnan(Found) ? -Bound : std::clamp(Found, -Bound, Bound);
}

double Policy::unit(ArrayRef<double> Values) {
  const double Found = summary(Values).first;
  return std::isnan(Found) ? 0 : Found;
}

} // namespace mlgokit
