#include "shared/Emitted.h"

#include "llvm/CodeGen/MachineBasicBlock.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/CodeGen/MachineOptimizationRemarkEmitter.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/LLVMContext.h"

#include <memory>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringLiteral Printer = "asm-printer";

/// The last word of the code generator about a function is a remark that counts its instructions.
class Listener final : public DiagnosticHandler {
public:
  Listener(std::unique_ptr<DiagnosticHandler> Before, std::function<void(MachineFunction &)> Note)
      : Before(std::move(Before)), Note(std::move(Note)) {}

  bool isAnalysisRemarkEnabled(StringRef Pass) const override {
    return Pass == Printer || Before->isAnalysisRemarkEnabled(Pass);
  }
  bool isMissedOptRemarkEnabled(StringRef Pass) const override { return Before->isMissedOptRemarkEnabled(Pass); }
  bool isPassedOptRemarkEnabled(StringRef Pass) const override { return Before->isPassedOptRemarkEnabled(Pass); }
  bool isAnyRemarkEnabled() const override { return true; }

  bool handleDiagnostics(const DiagnosticInfo &Said) override {
    if (Said.getKind() == DK_MachineOptimizationRemarkAnalysis) {
      const auto &Remark = static_cast<const DiagnosticInfoMIROptimization &>(Said);
      if (Remark.getPassName() == Printer) {
        // Nobody else holds the function by then.
        if (Remark.getRemarkName() == "InstructionCount")
          Note(const_cast<MachineFunction &>(*Remark.getBlock()->getParent()));
        if (!Before->isAnalysisRemarkEnabled(Printer))
          return true;
      }
    }
    // The context asked whether remarks are wanted, and was told that all are.
    if (DiagnosticInfoOptimizationBase::classof(&Said) &&
        !static_cast<const DiagnosticInfoOptimizationBase &>(Said).isEnabled())
      return true;
    return Before->handleDiagnostics(Said);
  }

private:
  std::unique_ptr<DiagnosticHandler> Before;
  std::function<void(MachineFunction &)> Note;
};

} // namespace

void whenEmitted(LLVMContext &Ctx, std::function<void(MachineFunction &)> Note) {
  Ctx.setDiagnosticHandler(std::make_unique<Listener>(Ctx.getDiagnosticHandler(), std::move(Note)));
}

} // namespace mlgokit
