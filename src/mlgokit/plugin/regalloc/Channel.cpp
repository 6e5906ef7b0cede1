#include "regalloc/Channel.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <mutex>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr StringRef Prefix = "mlgokit-channel-";
constexpr const char *Ends[] = {"/channel.in", "/channel.out"};

void removeFolder(const std::string &Folder) {
  for (const char *End : Ends)
    ::unlink((Folder + End).c_str());
  ::rmdir(Folder.c_str());
}

/// A folder lives for microseconds, and only a kill in that time leaves one behind: those that are older, and whose
/// process is gone, are removed. (Age besides, because a process in another container may have the number.)
void removeStaleFolders(StringRef Parent) {
  std::error_code Code;
  for (sys::fs::directory_iterator I(Parent, Code), E; !Code && I != E; I.increment(Code)) {
    StringRef Name = sys::path::filename(I->path());
    if (!Name.consume_front(Prefix))
      continue;
    pid_t Process = 0;
    sys::fs::file_status Status;
    if (Name.consumeInteger(10, Process) || Process <= 0 || sys::fs::status(I->path(), Status))
      continue;
    const auto Age = std::chrono::system_clock::now() - Status.getLastModificationTime();
    if (Age > std::chrono::minutes(1) && ::kill(Process, 0) != 0 && errno == ESRCH)
      removeFolder(I->path());
  }
}

} // namespace

Error withSilentChannel(StringRef OptionName, function_ref<void()> Make) {
  // The option belongs to the whole process, and ThinLTO's back ends run in parallel.
  static std::mutex Guard;
  std::lock_guard<std::mutex> Lock(Guard);
  cl::Option *Option = cl::getRegisteredOptions().lookup(OptionName);
  if (!Option)
    return createStringError(inconvertibleErrorCode(), "expected the option -" + OptionName.str() +
                                                           " in this LLVM, found none; the plugin does not know it");
  SmallString<128> Parent;
  sys::path::system_temp_directory(/*ErasedOnReboot=*/true, Parent);
  static bool Swept = false;
  if (!Swept)
    removeStaleFolders(Parent);
  Swept = true;
  std::string Folder = (Parent + "/" + Prefix + Twine(::getpid()) + "-XXXXXX").str();
  if (!::mkdtemp(Folder.data()))
    return createStringError(errnoAsErrorCode(), "temporary folder " + Parent.str().str() +
                                                     ": expected room for a folder, found: " +
                                                     errnoAsErrorCode().message() + "; name another with TMPDIR");
  bool Linked = true;
  for (const char *End : Ends)
    Linked &= ::symlink("/dev/null", (Folder + End).c_str()) == 0;
  const std::error_code Code = errnoAsErrorCode();
  if (Linked) {
    auto &Base = *static_cast<cl::opt<std::string> *>(Option);
    const std::string Before = Base.getValue();
    Base.setValue(Folder + "/channel");
    Make();
    Base.setValue(Before);
  }
  removeFolder(Folder);
  return Linked ? Error::success()
                : createStringError(Code, "temporary folder " + Folder + ": expected to write there, found: " +
                                              Code.message() + "; name another with TMPDIR");
}

} // namespace mlgokit
