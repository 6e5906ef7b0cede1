#include "inliner/ReplayLines.h"

#include "shared/Files.h"

#include "llvm/Analysis/ReplayInlineAdvisor.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr CallSiteFormat Format{CallSiteFormat::Format::LineColumnDiscriminator};

/// Whether LLVM would read \p Text back out of its place in a line.
bool fitsInLine(StringRef Text) {
  return !Text.empty() &&
         none_of(Text, [](unsigned char C) { return C < ' ' || C == '\'' || C == ';' || C == 0x7f; }) &&
         !Text.contains(" at callsite ");
}

class ReplayLines final : public InlineAdvisor {
public:
  ReplayLines(std::unique_ptr<InlineAdvisor> Inner, Module &M, FunctionAnalysisManager &FAM,
              std::unique_ptr<raw_fd_ostream> Lines)
      : InlineAdvisor(M, FAM), Inner(std::move(Inner)), Lines(std::move(Lines)) {}

  ~ReplayLines() override {
    Lines->flush();
    if (Lines->has_error()) {
      M.getContext().emitError("mlgokit: replay lines: cannot be written: " + Lines->error().message());
      Lines->clear_error();
    }
  }

  void onPassEntry(LazyCallGraph::SCC *C) override { Inner->onPassEntry(C); }
  void onPassExit(LazyCallGraph::SCC *C) override { Inner->onPassExit(C); }

protected:
  std::unique_ptr<InlineAdvice> getAdviceImpl(CallBase &Call) override {
    std::unique_ptr<InlineAdvice> Advice = Inner->getAdvice(Call);
    if (Advice)
      write(Call, Advice->isInliningRecommended());
    return Advice;
  }

  std::unique_ptr<InlineAdvice> getMandatoryAdvice(CallBase &Call, bool) override {
    return Inner->getAdvice(Call, /*MandatoryOnly=*/true);
  }

private:
  void write(const CallBase &Call, bool Inline) {
    if (!Call.getDebugLoc())
      return;
    const std::string Site = formatCallSiteLocation(Call.getDebugLoc(), Format);
    const StringRef Callee = Call.getCalledFunction()->getName(), Caller = Call.getCaller()->getName();
    if (fitsInLine(Callee) && fitsInLine(Caller) && fitsInLine(Site))
      *Lines << "mlgokit: '" << Callee << (Inline ? "' inlined into '" : "' will not be inlined into '") << Caller
             << "' at callsite " << Site << ";\n";
  }

  std::unique_ptr<InlineAdvisor> Inner;
  std::unique_ptr<raw_fd_ostream> Lines;
};

} // namespace

Expected<std::unique_ptr<InlineAdvisor>> withReplayLines(std::unique_ptr<InlineAdvisor> Inner, Module &M,
                                                         FunctionAnalysisManager &FAM, const Settings &S) {
  if (S.ReplayLines.empty())
    return Inner;
  const std::string Path = numbered(S.ReplayLines);
  std::error_code Code;
  auto Lines = std::make_unique<raw_fd_ostream>(Path, Code);
  if (Code)
    return createStringError(Code, "replay lines " + Path + ": cannot be written: " + Code.message());
  return std::make_unique<ReplayLines>(std::move(Inner), M, FAM, std::move(Lines));
}

} // namespace mlgokit
