#include "passes/ExecutedList.h"

#include "passes/OptimizerGate.h"
#include "shared/Emitted.h"
#include "shared/Executed.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/Twine.h"
#include "llvm/CodeGen/MachineFunction.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <cerrno>
#include <cstring>
#include <memory>

#include <fcntl.h>

using namespace llvm;

namespace mlgokit {

void enterExecutedList(LLVMContext &Ctx) {
  const char *Path = listPath();
  if (!Path)
    return;
  const int File = open(Path, O_WRONLY | O_APPEND | O_CLOEXEC);
  if (File < 0 && errno == ENOENT)
    return;
  if (File < 0)
    return Ctx.emitError(std::string("mlgokit: list of passes ") + Path + ": " + std::strerror(errno));
  // A copy of the compiler ends without the destructors.
  auto List = std::make_shared<raw_fd_ostream>(File, /*shouldClose=*/true, /*unbuffered=*/true);
  whenEmitted(Ctx, [List](MachineFunction &MF) {
    if (MF.getName().find_first_of("\r\n") != StringRef::npos)
      return;
    SmallString<128> Line;
    raw_svector_ostream(Line) << "executed " << format("%.17g", executedInstructions(MF)) << ' ' << MF.getName()
                              << '\n';
    *List << Line;
  });
}

} // namespace mlgokit
