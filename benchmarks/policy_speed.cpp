// Times Policy::preference: the plugin's own object files, linked with this driver.
//
//   policy_speed <policy> <observations> <rows> <repetitions> <preferences>
//
// Observations are rows of doubles, one per feature of the policy. Writes the preference of every row as a double to
// <preferences>, so that the caller can check that the right thing was timed, and one line of JSON to standard output.
#include "shared/Policy.h"

#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <vector>

using namespace llvm;

namespace {

using Clock = std::chrono::steady_clock;

/// More than the second-level cache of any processor, as a compiler between two decisions uses.
constexpr size_t ForeignBytes = size_t(16) << 20;
constexpr size_t ColdRepetitions = 200;

bool refuse() { return false; }

double nanoseconds(Clock::duration Time) { return std::chrono::duration<double, std::nano>(Time).count(); }

int complain(const std::string &What) {
  errs() << "policy_speed: " << What << "\n";
  return 1;
}

void writeNumbers(const char *Name, const std::vector<double> &Numbers) {
  outs() << "\"" << Name << "\":[";
  for (size_t I = 0; I < Numbers.size(); ++I)
    outs() << (I ? "," : "") << format("%.3f", Numbers[I]);
  outs() << "]";
}

} // namespace

int main(int Count, char **Words) {
  if (Count != 6)
    return complain("expected <policy> <observations> <rows> <repetitions> <preferences>");
  auto PolicyFile = MemoryBuffer::getFile(Words[1], /*IsText=*/false, /*RequiresNullTerminator=*/false);
  auto RowsFile = MemoryBuffer::getFile(Words[2], /*IsText=*/false, /*RequiresNullTerminator=*/false);
  const size_t Rows = std::strtoull(Words[3], nullptr, 10), Repetitions = std::strtoull(Words[4], nullptr, 10);
  if (!PolicyFile || !RowsFile)
    return complain("the policy or the observations cannot be read");
  Expected<mlgokit::Policy> Parsed = mlgokit::Policy::parse((*PolicyFile)->getBuffer(), Words[1]);
  if (!Parsed)
    return complain(toString(Parsed.takeError()));
  mlgokit::Policy Policy = std::move(*Parsed);
  const size_t Features = Policy.features().size();
  if (!Rows || !Repetitions || (*RowsFile)->getBufferSize() != Rows * Features * sizeof(double))
    return complain("the observations do not fit the policy's features and the number of rows");
  std::vector<double> Values(Rows * Features);
  std::memcpy(Values.data(), (*RowsFile)->getBufferStart(), Values.size() * sizeof(double));
  auto Row = [&](size_t I) { return ArrayRef<double>(Values.data() + I * Features, Features); };

  std::vector<double> Preferences;
  for (size_t I = 0; I < Rows; ++I)
    Preferences.push_back(Policy.preference(Row(I), refuse));
  std::error_code Code;
  raw_fd_ostream Written(Words[5], Code);
  if (Code)
    return complain(std::string(Words[5]) + " cannot be written: " + Code.message());
  Written.write(reinterpret_cast<const char *>(Preferences.data()), Preferences.size() * sizeof(double));

  double Sum = 0; // printed, so that no evaluation can be left out
  std::vector<double> Hot;
  for (size_t R = 0; R < Repetitions; ++R) {
    const Clock::time_point Begin = Clock::now();
    for (size_t I = 0; I < Rows; ++I)
      Sum += Policy.preference(Row(I), refuse);
    Hot.push_back(nanoseconds(Clock::now() - Begin) / double(Rows));
  }
  std::vector<char> Foreign(ForeignBytes);
  std::vector<double> Cold;
  for (size_t R = 0; R < ColdRepetitions; ++R) {
    for (size_t I = 0; I < ForeignBytes; I += 64)
      Foreign[I] += char(R + 1);
    const Clock::time_point Begin = Clock::now();
    Sum += Policy.preference(Row(R % Rows), refuse);
    Cold.push_back(nanoseconds(Clock::now() - Begin));
  }
  for (size_t I = 0; I < ForeignBytes; I += 4096)
    Sum += Foreign[I];

  outs() << "{";
  writeNumbers("hot_nanoseconds", Hot);
  outs() << ",";
  writeNumbers("cold_nanoseconds", Cold);
  outs() << ",\"sum\":" << format("%.9g", Sum) << "}\n";
  return 0;
}
