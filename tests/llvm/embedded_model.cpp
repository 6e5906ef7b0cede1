// Asks a model that `mlgokit export llvm` wrote through LLVM's own ReleaseModeModelRunner, and times it.
//
//   clang++ -include-pch embedded_model.pch -include InlinerSizeModel.h -DMODEL=InlinerSizeModel -DDECISION=int64_t ...
//   embedded_model <decision> <selector> <observations> <repetitions> <answers> <feature>:<type>:<elements>...
//
// An observation is all tensors in the order of the words, as a training log has them. Writes all answers to <answers>
// and one line of JSON to standard output. A selector that is empty asks for none.
#include "embedded_model.h"

using namespace llvm;

namespace {

using Clock = std::chrono::steady_clock;

TensorSpec specOf(StringRef Word) {
  const auto [Name, Rest] = Word.split(':');
  const auto [Type, Elements] = Rest.split(':');
  const std::vector<int64_t> Shape = {std::strtol(Elements.str().c_str(), nullptr, 10)};
  return Type == "float" ? TensorSpec::createSpec<float>(Name.str(), Shape)
                         : TensorSpec::createSpec<int64_t>(Name.str(), Shape);
}

} // namespace

int main(int Count, char **Words) {
  std::vector<TensorSpec> Specs;
  size_t Bytes = 0;
  for (int I = 6; I < Count; ++I) {
    Specs.push_back(specOf(Words[I]));
    Bytes += Specs.back().getTotalTensorBufferSize();
  }
  auto File = MemoryBuffer::getFile(Words[3], /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!File || Specs.empty() || (*File)->getBufferSize() % Bytes) {
    errs() << "embedded_model: " << Words[3] << ": expected whole observations\n";
    return 1;
  }
  const size_t Rows = (*File)->getBufferSize() / Bytes, Repetitions = std::strtoul(Words[4], nullptr, 10);

  LLVMContext Context;
  EmbeddedModelRunnerOptions Options;
  Options.setModelSelector(Words[2]);
  ReleaseModeModelRunner<MODEL> Runner(Context, Specs, Words[1], Options);
  auto Ask = [&](size_t Row) {
    const char *From = (*File)->getBufferStart() + Row * Bytes;
    for (size_t I = 0; I < Specs.size(); ++I) {
      std::memcpy(Runner.getTensorUntyped(I), From, Specs[I].getTotalTensorBufferSize());
      From += Specs[I].getTotalTensorBufferSize();
    }
    return Runner.evaluate<DECISION>();
  };
  std::vector<DECISION> Answers;
  for (size_t Row = 0; Row < Rows; ++Row)
    Answers.push_back(Ask(Row));
  std::error_code Code;
  raw_fd_ostream Out(Words[5], Code);
  Out.write(reinterpret_cast<const char *>(Answers.data()), Answers.size() * sizeof(DECISION));

  double Sum = 0; // printed, so that no evaluation can be left out
  outs() << "{\"hot_nanoseconds\":[";
  for (size_t R = 0; R < Repetitions; ++R) {
    const Clock::time_point Begin = Clock::now();
    for (size_t Row = 0; Row < Rows; ++Row)
      Sum += double(Ask(Row));
    const std::chrono::duration<double, std::nano> Taken = Clock::now() - Begin;
    outs() << (R ? "," : "") << format("%.3f", Taken.count() / double(Rows));
  }
  outs() << "],\"sum\":" << format("%.9g", Sum) << "}\n";
  return Code ? 1 : 0;
}
