// A model of `mlgokit export llvm` in the place where LLVM expects one, which notes each decision and its nanoseconds.
//
// Included with MODEL, LLVM's name of the class, and EXPORTED, the one that was exported. What is noted goes to the
// file that MLGOKIT_EMBEDDED_LOG names, as two int64_t for each decision.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

namespace llvm {

class MODEL final {
public:
  MODEL() : Out(nullptr) {
    if (const char *Path = std::getenv("MLGOKIT_EMBEDDED_LOG"))
      Out = std::fopen(Path, "ab");
  }
  ~MODEL() {
    if (Out)
      std::fclose(Out);
  }
  MODEL(const MODEL &) = delete;
  MODEL &operator=(const MODEL &) = delete;

  int LookupArgIndex(const std::string &Name) const { return Exported.LookupArgIndex(Name); }
  int LookupResultIndex(const std::string &Name) const { return Exported.LookupResultIndex(Name); }
  void *arg_data(int Index) { return Exported.arg_data(Index); }
  void *result_data(int Index) { return Exported.result_data(Index); }
  bool Run() {
    const auto Begin = std::chrono::steady_clock::now();
    Exported.Run();
    const std::chrono::nanoseconds Taken = std::chrono::steady_clock::now() - Begin;
    const int64_t Noted[] = {*static_cast<const int64_t *>(Exported.result_data(0)), int64_t(Taken.count())};
    if (Out)
      std::fwrite(Noted, sizeof(Noted), 1, Out);
    return true;
  }

private:
  EXPORTED Exported;
  std::FILE *Out;
};

} // namespace llvm
