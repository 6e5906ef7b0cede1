#include "reuse/Resident.h"

#include "shared/Descriptor.h"

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/Twine.h"
#include "llvm/IR/DebugInfo.h"
#include "llvm/IR/DiagnosticHandler.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/Endian.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace llvm;

namespace mlgokit {

namespace {

constexpr int Channel = 0;
constexpr uint32_t LongestRequest = 1 << 20;
constexpr uint64_t NotStarted = ~uint64_t(0);

bool receive(char *Begin, size_t Size) {
  while (Size) {
    const ssize_t Read = read(Channel, Begin, Size);
    if (Read < 0 && errno == EINTR)
      continue;
    if (Read <= 0)
      return false;
    Begin += Read;
    Size -= Read;
  }
  return true;
}

uint64_t microseconds(const timeval &T) { return uint64_t(T.tv_sec) * 1000000 + T.tv_usec; }

/// How a child ended and what it took, and what this process took so far.
bool reply(uint64_t Status, const rusage &Child) {
  rusage Own{};
  getrusage(RUSAGE_SELF, &Own);
  const std::array<uint64_t, 6> Fields = {Status,
                                          microseconds(Child.ru_utime),
                                          microseconds(Child.ru_stime),
                                          uint64_t(Child.ru_maxrss),
                                          microseconds(Own.ru_utime),
                                          microseconds(Own.ru_stime)};
  std::array<char, sizeof(Fields)> Bytes;
  for (size_t I = 0; I < Fields.size(); ++I)
    support::endian::write64le(Bytes.data() + 8 * I, Fields[I]);
  return writeAll(Channel, Bytes);
}

/// Whether another thread of this process is anywhere but asleep; \p Count has how many there are, this one included.
bool othersRun(unsigned &Count) {
  Count = 0;
  DIR *Tasks = opendir("/proc/self/task");
  if (!Tasks)
    return true;
  const std::string Self = std::to_string(syscall(SYS_gettid));
  bool Run = false;
  while (const dirent *Entry = readdir(Tasks)) {
    if (Entry->d_name[0] == '.')
      continue;
    ++Count;
    if (Self == Entry->d_name)
      continue;
    auto Read = MemoryBuffer::getFileAsStream(Twine("/proc/self/task/") + Entry->d_name + "/stat");
    // The name stands in parentheses and may be anything; the state follows it.
    Run |= !Read || !(*Read)->getBuffer().rsplit(')').second.ltrim().starts_with("S");
  }
  closedir(Tasks);
  return Run;
}

/// Whether a fork, which copies only the thread that makes it, can go on alone: there is no other one, or, for rustc,
/// the others wait for this one to end.
bool mayFork(bool WithOthers) {
  unsigned Count = 0;
  for (unsigned Tries = 0; Tries < 1000; ++Tries) {
    const bool Run = othersRun(Count);
    if (Count == 1 || (Count > 1 && !WithOthers))
      return Count == 1;
    if (!Run && Count)
      return true;
    usleep(1000);
  }
  return false;
}

/// Puts a file at \p Descriptor; ends the child if that fails.
void redirect(const char *Path, int Flags, int Descriptor) {
  const int File = open(Path, Flags | O_CLOEXEC, 0666);
  if (File < 0 || dup2(File, Descriptor) < 0) {
    const std::string Message = std::string("error: ") + Path + ": " + std::strerror(errno) + "\n";
    (void)!write(STDERR_FILENO, Message.data(), Message.size());
    _exit(1);
  }
  if (File != Descriptor)
    close(File);
}

void becomeCompiler(SmallVectorImpl<char> &Request, pid_t Parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != Parent)
    _exit(1);
  signal(SIGPIPE, SIG_DFL);
  for (size_t At = 0; At < Request.size();) {
    char *Setting = &Request[At];
    At += std::strlen(Setting) + 1;
    if (char *Equals = std::strchr(Setting, '=')) {
      *Equals = 0;
      setenv(Setting, Equals + 1, 1);
    }
  }
  const char *Messages = getenv("MLGOKIT_MESSAGES"), *Object = getenv("MLGOKIT_OBJECT");
  redirect("/dev/null", O_RDONLY, STDIN_FILENO);
  redirect(Messages ? Messages : "/dev/null", O_WRONLY | O_CREAT | O_TRUNC, STDERR_FILENO);
  redirect(Object ? Object : "/dev/null", O_RDWR | O_CREAT | O_TRUNC, STDOUT_FILENO);
}

/// A worker of rustc that is copied would send its errors to nobody.
class ErrorsEnd final : public DiagnosticHandler {
  bool handleDiagnostics(const DiagnosticInfo &Said) override {
    if (Said.getSeverity() != DS_Error)
      return true;
    {
      raw_fd_ostream Out(STDERR_FILENO, /*shouldClose=*/false, /*unbuffered=*/true);
      DiagnosticPrinterRawOStream Printer(Out);
      Out << "error: ";
      Said.print(Printer);
      Out << '\n';
    }
    _exit(1);
  }
};

bool IsWorkersCopy = false;

/// Its end is the end of the process: what would be done there belongs to threads that are no more.
void becomeWorker(LLVMContext &Context) {
  IsWorkersCopy = true;
  endOnErrors(Context);
  std::atexit([] { _exit(0); });
}

/// Waits for the child; whatever comes through the channel meanwhile, its end included, kills it.
bool await(pid_t Child) {
  const int Descriptor = int(syscall(SYS_pidfd_open, Child, 0));
  pollfd Watched[] = {{Descriptor, POLLIN, 0}, {Channel, POLLIN, 0}};
  while (Descriptor >= 0 && poll(Watched, 2, -1) < 0 && errno == EINTR)
    ;
  if (Descriptor < 0 || !Watched[0].revents)
    kill(Child, SIGKILL);
  if (Descriptor >= 0)
    close(Descriptor);
  char Word = 0;
  if (Descriptor >= 0 && Watched[1].revents && !receive(&Word, 1))
    return false;
  rusage Usage{};
  int Status = 0;
  while (wait4(Child, &Status, 0, &Usage) < 0 && errno == EINTR)
    ;
  return reply(uint64_t(Status), Usage);
}

} // namespace

bool isWorkersCopy() { return IsWorkersCopy; }

void endOnErrors(LLVMContext &Context) {
  if (IsWorkersCopy)
    Context.setDiagnosticHandler(std::make_unique<ErrorsEnd>());
}

void serveRequests(Module &M, bool AtLink) {
  static bool Entered = false;
  const char *Variable = getenv("MLGOKIT_RESIDENT");
  const StringRef Wanted = Variable ? Variable : "";
  const bool IsWorker = Wanted == "worker";
  if (Entered || !(IsWorker ? AtLink : Wanted == "1"))
    return;
  Entered = true;
  signal(SIGPIPE, SIG_IGN);
  if (!mayFork(/*WithOthers=*/IsWorker))
    _exit(1);
  // The standard library comes with debug information, which cargo has the linker strip.
  if (IsWorker)
    StripDebugInfo(M);
  if (!reply(0, rusage{}))
    _exit(1);
  const pid_t Self = getpid();
  char Length[4];
  while (receive(Length, sizeof Length)) {
    const uint32_t Size = support::endian::read32le(Length);
    if (!Size || Size > LongestRequest)
      _exit(1);
    SmallVector<char, 0> Request(Size);
    if (!receive(Request.data(), Size) || Request.back() != 0)
      _exit(1);
    const pid_t Child = fork();
    if (Child == 0) {
      becomeCompiler(Request, Self);
      if (IsWorker)
        becomeWorker(M.getContext());
      return;
    }
    if (!(Child < 0 ? reply(NotStarted, rusage{}) : await(Child)))
      break;
  }
  _exit(0);
}

} // namespace mlgokit
