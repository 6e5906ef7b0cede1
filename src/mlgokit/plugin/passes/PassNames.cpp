#include "passes/PassNames.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Pass.h"
#include "llvm/PassInfo.h"
#include "llvm/PassRegistry.h"
#include "llvm/Support/CRC.h"

using namespace llvm;

namespace mlgokit {

namespace {

/// Finds the argument of the pass with a title. Of several with one title, the same is taken in every process.
class TitleSearch final : public PassRegistrationListener {
public:
  explicit TitleSearch(StringRef Title) : Title(Title) {}
  StringRef Found;

private:
  void passEnumerate(const PassInfo *P) override {
    const StringRef Argument = P->getPassArgument();
    if (P->getPassName() == Title && !Argument.empty() && (Found.empty() || Argument < Found))
      Found = Argument;
  }

  const StringRef Title;
};

} // namespace

StringRef PassNames::argumentOf(StringRef Asked) {
  PassRegistry *Registry = PassRegistry::getPassRegistry();
  if (Registry->getPassInfo(Asked))
    return Asked;
  TitleSearch Search(Asked);
  Registry->enumerateWith(&Search);
  return Search.Found.empty() ? Asked : Search.Found;
}

StringRef PassNames::passOrNothing(StringRef Asked) { return Asked.contains('<') ? StringRef() : Asked; }

const PassName &PassNames::enter(StringRef Asked, StringRef (*Argument)(StringRef)) {
  const StringRef Found = Argument(Asked);
  return Known[Asked.data()] = {Found, passNumber(Found), Asked.size()};
}

uint32_t passNumber(StringRef Argument) { return crc32(arrayRefFromStringRef(Argument)); }

} // namespace mlgokit
