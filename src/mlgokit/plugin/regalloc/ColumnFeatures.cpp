#include "regalloc/ColumnFeatures.h"

#include "shared/Files.h"

#include "llvm/ADT/StringMap.h"

#include <algorithm>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr std::pair<StringRef, int> Prefixes[] = {{"default:", 1}, {"least:", 2}, {"mean:", 3}, {"most:", 4}};
constexpr StringRef OwnNames[] = {"is_itself", "legal_columns"};

} // namespace

Expected<ColumnFeatures> ColumnFeatures::find(const Policy &P, const std::vector<TensorSpec> &Inputs, size_t Columns) {
  StringMap<size_t> Known;
  for (const TensorSpec &Spec : Inputs)
    Known.try_emplace(Spec.name(), Known.size());
  for (const StringRef Name : OwnNames)
    Known.try_emplace(Name, Known.size());
  std::vector<std::string> Names;
  ColumnFeatures Found;
  for (const std::string &Feature : P.features()) {
    StringRef Name = Feature;
    int From = 0;
    for (const auto &[Prefix, Place] : Prefixes)
      if (Name.consume_front(Prefix)) {
        From = Place;
        break;
      }
    Names.push_back(Name.str());
    Found.Sources.push_back({Of(From), 0, false});
    Found.NeedsDefault |= Of(From) == Of::Default;
  }
  Expected<std::vector<size_t>> Places = findFeatures(P, Names, Known);
  if (!Places)
    return Places.takeError();
  for (size_t I = 0; I < Names.size(); ++I) {
    Source &S = Found.Sources[I];
    S.Input = (*Places)[I];
    if (S.Input >= Inputs.size()) {
      S.IsSingle = S.Input > Inputs.size();
      continue;
    }
    const TensorSpec &Spec = Inputs[S.Input];
    S.IsSingle = Spec.getElementCount() == 1;
    const bool Typed = Spec.isElementType<float>() || Spec.isElementType<int64_t>();
    if (!Typed || (!S.IsSingle && Spec.getElementCount() != Columns))
      return createStringError(inconvertibleErrorCode(), "policy " + P.origin() + ": expected the feature '" +
                                                             Spec.name() + "' to have 1 or " + std::to_string(Columns) +
                                                             " elements of type int64_t or float, found another; "
                                                             "train a policy without it");
  }
  Found.Columns = Columns;
  Found.Inputs = Inputs.size();
  Found.Row.resize(Names.size());
  return Found;
}

double ColumnFeatures::valueAt(const Source &S, size_t Column, Read Value) const {
  if (S.Input == Inputs)
    return Column + 1 == Columns;
  if (S.Input > Inputs)
    return double(Legal);
  return Value(S.Input, S.IsSingle ? 0 : Column);
}

void ColumnFeatures::enter(ArrayRef<int64_t> Mask, size_t Default, Read Value) {
  Legal = size_t(std::count_if(Mask.begin(), Mask.end(), [](int64_t M) { return M != 0; }));
  for (size_t I = 0; I < Sources.size(); ++I) {
    const Source &S = Sources[I];
    if (S.From == Of::Column)
      continue;
    if (S.From == Of::Default) {
      Row[I] = valueAt(S, Default, Value);
      continue;
    }
    double Sum = 0, Least = 0, Most = 0;
    bool IsFirst = true;
    for (size_t C = 0; C < Columns; ++C)
      if (Mask[C]) {
        const double V = valueAt(S, C, Value);
        Sum += V;
        Least = IsFirst ? V : std::min(Least, V);
        Most = IsFirst ? V : std::max(Most, V);
        IsFirst = false;
      }
    Row[I] = S.From == Of::Least ? Least : S.From == Of::Most ? Most : Legal ? Sum / double(Legal) : 0;
  }
}

ArrayRef<double> ColumnFeatures::row(size_t Column, Read Value) {
  for (size_t I = 0; I < Sources.size(); ++I)
    if (Sources[I].From == Of::Column)
      Row[I] = valueAt(Sources[I], Column, Value);
  return Row;
}

} // namespace mlgokit
