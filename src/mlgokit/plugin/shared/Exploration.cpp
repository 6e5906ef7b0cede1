#include "shared/Exploration.h"

#include "llvm/ADT/Twine.h"
#include "llvm/Support/MD5.h"

using namespace llvm;

namespace mlgokit {

namespace {

constexpr uint64_t Step = 0x9E3779B97F4A7C15;

double mixed(uint64_t Z) {
  Z = (Z ^ (Z >> 30)) * 0xBF58476D1CE4E5B9;
  Z = (Z ^ (Z >> 27)) * 0x94D049BB133111EB;
  Z ^= Z >> 31;
  return double(Z >> 11) * 0x1.0p-53;
}

} // namespace

Draw drawAt(uint64_t First, uint64_t Index) {
  return {mixed(First + (2 * Index + 1) * Step), mixed(First + (2 * Index + 2) * Step)};
}

void FunctionDraws::enter(StringRef Function) {
  First = Seed ^ MD5Hash((Twine(Problem) + "/" + Function).str());
  Count = &Counts.try_emplace(Function, 0).first->second;
}

} // namespace mlgokit
