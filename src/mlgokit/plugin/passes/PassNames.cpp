#include "passes/PassNames.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Pass.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/CRC.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Enters every pass that is registered by now, under its argument and its title.
class Listener final : public PassRegistrationListener {
public:
  explicit Listener(StringMap<StringRef> &Known) : Known(Known) {}

private:
  void passEnumerate(const PassInfo *P) override {
    const StringRef Argument = P->getPassArgument();
    if (Argument.empty())
      return;
    Known[Argument] = Argument;
    StringRef &Titled = Known[P->getPassName()];
    // Of several with one title, the same is taken in every process.
    if (Titled.empty() || Argument < Titled)
      Titled = Argument;
  }

  StringMap<StringRef> &Known;
};

} // namespace

StringRef PassNames::argumentOf(StringRef Asked) {
  auto Found = Known.find(Asked);
  if (Found == Known.end()) {
    // Passes are registered when they are made.
    Listener L(Known);
    PassRegistry::getPassRegistry()->enumerateWith(&L);
    Found = Known.try_emplace(Asked, StringRef()).first;
    if (Found->second.empty())
      Found->second = Found->first();
  }
  return Found->second;
}

uint32_t passNumber(StringRef Argument) { return crc32(arrayRefFromStringRef(Argument)); }

} // namespace mlgokit
