// The fragments that an assembler's section consists of.
#ifndef MLGOKIT_MAJORS_FRAGMENTS_H
#define MLGOKIT_MAJORS_FRAGMENTS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/MC/MCExpr.h"
#include "llvm/Support/Casting.h"
#if LLVM_VERSION_MAJOR >= 21
#include "llvm/MC/MCSection.h"
#else
#include "llvm/MC/MCFragment.h"
#endif

#include <cstddef>

namespace mlgokit {

/// What was encoded into a fragment.
struct Encoded {
  size_t Bytes = 0;
  llvm::StringRef Relaxable;            // the instruction at its end that may become longer
  const llvm::MCExpr *Target = nullptr; // of that instruction, if it has one
};

inline Encoded encodedIn(const llvm::MCFragment &F) {
  using namespace llvm;
  Encoded E;
#if LLVM_VERSION_MAJOR >= 22
  const bool IsRelaxable = F.getKind() == MCFragment::FT_Relaxable;
  if (F.getKind() != MCFragment::FT_Data && !IsRelaxable)
    return E;
  E.Bytes = F.getSize();
  if (IsRelaxable && F.getVarFixups().size() == 1) {
    E.Target = F.getVarFixups()[0].getValue();
    E.Relaxable = {F.getVarContents().data(), F.getVarContents().size()};
  }
#else
  if (const auto *Data = dyn_cast<MCDataFragment>(&F))
    E.Bytes = Data->getContents().size();
  if (const auto *Relaxable = dyn_cast<MCRelaxableFragment>(&F)) {
    E.Bytes = Relaxable->getContents().size();
    if (Relaxable->getFixups().size() == 1)
      E.Target = Relaxable->getFixups()[0].getValue();
    E.Relaxable = {Relaxable->getContents().data(), Relaxable->getContents().size()};
  }
#endif
  return E;
}

} // namespace mlgokit

#endif
