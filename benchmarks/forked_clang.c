// Preloaded into a clang: once its libraries are there, it stays and forks a copy for each command line that comes
// through a descriptor, so that a call takes milliseconds. For forked_clang.py, which has the other end.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static int Channel; // the variable MLGOKIT_FORKED has its number
typedef int Main(int, char **, char **);
static Main *Real;
extern char **environ;

static void whole(void *Begin, size_t Size) {
  for (char *At = Begin; Size;) {
    const ssize_t Read = read(Channel, At, Size);
    if (Read <= 0)
      _exit(0);
    At += Read;
    Size -= (size_t)Read;
  }
}

static char **strings(char **At, uint32_t Count) {
  char **Words = calloc(Count + 1, sizeof *Words);
  for (uint32_t I = 0; I < Count; ++I) {
    Words[I] = *At;
    *At += strlen(*At) + 1;
  }
  return Words;
}

static void limit(int Kind, uint64_t Most) {
  const struct rlimit Limit = {Most, Most};
  if (Most)
    setrlimit(Kind, &Limit);
}

static int serve(int Count, char **Words, char **Variables) {
  (void)Count, (void)Words, (void)Variables;
  Channel = atoi(getenv("MLGOKIT_FORKED"));
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (;;) {
    struct {
      uint32_t Size, Arguments, Variables, Seconds;
      uint64_t FileBytes, MemoryBytes;
    } Head;
    whole(&Head, sizeof Head);
    char *Text = malloc(Head.Size + 1), *At = Text;
    whole(Text, Head.Size);
    Text[Head.Size] = 0;
    const pid_t Child = fork();
    if (Child == 0) {
      setsid();
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      char **Files = strings(&At, 4); // its folder; what it reads; where it writes what it finds, and what it says
      char **Argv = strings(&At, Head.Arguments);
      environ = strings(&At, Head.Variables);
      const int In = open(Files[1], O_RDONLY), Out = open(Files[2], O_WRONLY), Err = open(Files[3], O_WRONLY);
      if (chdir(Files[0]) < 0 || dup2(In, 0) < 0 || dup2(Out, 1) < 0 || dup2(Err, 2) < 0)
        _exit(127);
      closefrom(3);
      limit(RLIMIT_FSIZE, Head.FileBytes);
      limit(RLIMIT_AS, Head.MemoryBytes);
      alarm(Head.Seconds);
      exit(Real((int)Head.Arguments, Argv, environ));
    }
    free(Text);
    int Status = -1;
    struct rusage Usage;
    memset(&Usage, 0, sizeof Usage);
    if (Child > 0)
      wait4(Child, &Status, 0, &Usage);
    const int64_t Answer[2] = {Status, Usage.ru_utime.tv_sec * 1000000 + Usage.ru_utime.tv_usec};
    if (write(Channel, Answer, sizeof Answer) != sizeof Answer)
      _exit(0);
  }
}

int __libc_start_main(Main *Begin, int Count, char **Words, Main *Init, void (*Fini)(void), void (*Last)(void),
                      void *Stack) {
  int (*Next)(Main *, int, char **, Main *, void (*)(void), void (*)(void), void *) =
      (int (*)(Main *, int, char **, Main *, void (*)(void), void (*)(void), void *))(intptr_t)dlsym(
          RTLD_NEXT, "__libc_start_main");
  Real = Begin;
  return Next(serve, Count, Words, Init, Fini, Last, Stack);
}
