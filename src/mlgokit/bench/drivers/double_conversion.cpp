// Writes numbers in four ways, and reads them back.
#include "double-conversion/double-conversion.h"
#include "input.h"
#include <cstring>

using namespace double_conversion;

int main() {
  const DoubleToStringConverter &Shortest = DoubleToStringConverter::EcmaScriptConverter();
  StringToDoubleConverter Reader(StringToDoubleConverter::NO_FLAGS, 0, 0, "inf", "nan");
  uint64_t State = 1, Draw = 88172645463325252u;
  long Wrong = 0;
  for (int Index = 0; Index < 12000; ++Index) {
    Draw ^= Draw << 13;
    Draw ^= Draw >> 7;
    Draw ^= Draw << 17;
    double Value;
    if (Index % 3 == 0)
      Value = (double)(Draw % 1000000) / 1000;
    else if (Index % 3 == 1)
      Value = (double)(Draw >> 20) * 1e-9;
    else {
      // Any finite number: the exponent keeps clear of infinity.
      uint64_t Bits = Draw & ~(uint64_t(1) << 62);
      memcpy(&Value, &Bits, sizeof(Value));
    }
    char Text[512];
    StringBuilder Short(Text, sizeof(Text));
    Shortest.ToShortest(Value, &Short);
    int Size = Short.position();
    Short.Finalize();
    int Read;
    Wrong += Reader.StringToDouble(Text, Size, &Read) != Value;
    State = digest(State, Text, (size_t)Size);
    StringBuilder Precise(Text, sizeof(Text));
    if (Index % 2)
      Shortest.ToPrecision(Value, 3 + Index % 12, &Precise);
    else
      Shortest.ToExponential(Value, Index % 16, &Precise);
    Size = Precise.position();
    Precise.Finalize();
    State = digest(State, Text, (size_t)Size);
    Reader.StringToDouble(Text, Size, &Read);
    if (Value < 1e20 && Value > -1e20) {
      StringBuilder Fixed(Text, sizeof(Text));
      Shortest.ToFixed(Value, Index % 9, &Fixed);
      Size = Fixed.position();
      Fixed.Finalize();
      State = digest(State, Text, (size_t)Size);
    }
  }
  printf("%ld\n", Wrong);
  report("numbers", State);
}
