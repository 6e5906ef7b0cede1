/* Preloaded into every program of a wrapped build: a compiler that is started by a whole path is replaced by the
 * wrapper of the same name. wrapper_folder.py builds it; builds that start compilers by name do without.
 *
 * Nothing here allocates: between vfork and exec a child has its parent's memory.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_WORDS = 4096 };

extern char **environ;

static char wrappers[PATH_MAX];

static int (*next_execve)(const char *, char *const[], char *const[]);
static int (*next_execvpe)(const char *, char *const[], char *const[]);
typedef int Spawn(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                  char *const[]);
static Spawn *next_posix_spawn;
static Spawn *next_posix_spawnp;

__attribute__((constructor)) static void find(void) {
  const char *folder = getenv("MLGOKIT_WRAPPERS");
  if (folder && strlen(folder) < sizeof wrappers)
    strcpy(wrappers, folder);
  next_execve = (int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execve");
  next_execvpe = (int (*)(const char *, char *const[], char *const[]))dlsym(RTLD_NEXT, "execvpe");
  next_posix_spawn = (Spawn *)dlsym(RTLD_NEXT, "posix_spawn");
  next_posix_spawnp = (Spawn *)dlsym(RTLD_NEXT, "posix_spawnp");
}

/* The wrapper in the place of a program that is named by a path, or the program. */
static const char *wrapped(const char *program, char *buffer) {
  const char *name = program ? strrchr(program, '/') : NULL;
  size_t length = strlen(wrappers);
  if (!length || !name || length + strlen(name) >= PATH_MAX)
    return program;
  if ((size_t)(name - program) == length && !strncmp(program, wrappers, length))
    return program;
  memcpy(buffer, wrappers, length);
  strcpy(buffer + length, name);
  int before = errno, is_there = !access(buffer, X_OK);
  errno = before;
  return is_there ? buffer : program;
}

int execve(const char *program, char *const words[], char *const variables[]) {
  char buffer[PATH_MAX];
  return next_execve(wrapped(program, buffer), words, variables);
}

int execv(const char *program, char *const words[]) { return execve(program, words, environ); }

int execvpe(const char *program, char *const words[], char *const variables[]) {
  char buffer[PATH_MAX];
  return next_execvpe(wrapped(program, buffer), words, variables);
}

int execvp(const char *program, char *const words[]) { return execvpe(program, words, environ); }

int posix_spawn(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
  char buffer[PATH_MAX];
  return next_posix_spawn(child, wrapped(program, buffer), actions, attributes, words, variables);
}

int posix_spawnp(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
  char buffer[PATH_MAX];
  return next_posix_spawnp(child, wrapped(program, buffer), actions, attributes, words, variables);
}

/* The words of a call that ends with a null pointer; gives their number, or too many. */
static int gather(const char *first, va_list rest, char *words[]) {
  int count = 0;
  for (const char *word = first; count < MOST_WORDS; word = va_arg(rest, const char *)) {
    words[count++] = (char *)word;
    if (!word)
      return count;
  }
  errno = E2BIG;
  return MOST_WORDS + 1;
}

int execl(const char *program, const char *first, ...) {
  char *words[MOST_WORDS];
  va_list rest;
  va_start(rest, first);
  int count = gather(first, rest, words);
  va_end(rest);
  return count > MOST_WORDS ? -1 : execve(program, words, environ);
}

int execlp(const char *program, const char *first, ...) {
  char *words[MOST_WORDS];
  va_list rest;
  va_start(rest, first);
  int count = gather(first, rest, words);
  va_end(rest);
  return count > MOST_WORDS ? -1 : execvpe(program, words, environ);
}

int execle(const char *program, const char *first, ...) {
  char *words[MOST_WORDS];
  va_list rest;
  va_start(rest, first);
  int count = gather(first, rest, words);
  char *const *variables = count > MOST_WORDS ? NULL : va_arg(rest, char *const *);
  va_end(rest);
  return count > MOST_WORDS ? -1 : execve(program, words, variables);
}
