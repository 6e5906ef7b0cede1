/* Preloaded into every program of a wrapped build: a compiler that is started by a whole path is replaced by the
 * wrapper of the same name, which is told the path. wrapper_folder.py builds it; builds that start compilers by name do
 * without.
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

#define STARTED "MLGOKIT_STARTED="
/* Below the folder of wrappers, one for compilers with names that it does not have. */
#define ANY "/../compiler"

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

/* Whether a file's name is that of a compiler, perhaps with a prefix for a machine and a version behind it. */
static int names_compiler(const char *name) {
  static const char *const names[] = {"cc", "gcc", "clang", "c++", "g++", "clang++"};
  size_t length = strlen(name), end = length;
  while (end && (strchr("0123456789.", name[end - 1])))
    --end;
  if (end < length && end && name[end - 1] == '-')
    length = end - 1;
  for (size_t i = 0; i < sizeof names / sizeof *names; ++i) {
    size_t size = strlen(names[i]);
    if (length >= size && !strncmp(name + length - size, names[i], size) &&
        (length == size || name[length - size - 1] == '-'))
      return 1;
  }
  return 0;
}

static int can_run(const char *path) {
  int before = errno, is_there = !access(path, X_OK);
  errno = before;
  return is_there;
}

/* What is started in the place of a program: `variables` has room for those of a call and one more. */
struct start {
  const char *program;
  char *const *variables;
  char path[PATH_MAX + sizeof ANY];
  char started[PATH_MAX + sizeof STARTED];
};

static size_t room(char *const variables[]) {
  size_t count = 0;
  while (variables && variables[count])
    ++count;
  return count + 2;
}

/* The wrapper in the place of a program that is named by a path, or the program. */
static void find_start(struct start *start, const char *program, char *const variables[], char *more[]) {
  start->program = program;
  start->variables = variables;
  const char *name = program ? strrchr(program, '/') : NULL;
  size_t length = strlen(wrappers);
  if (!length || !name || strlen(program) >= PATH_MAX || length + strlen(name) >= PATH_MAX)
    return;
  if ((size_t)(name - program) == length && !strncmp(program, wrappers, length))
    return;
  /* Some programs search PATH by trying each folder. */
  if (!can_run(program))
    return;
  memcpy(start->path, wrappers, length);
  strcpy(start->path + length, name);
  if (!can_run(start->path)) {
    if (!names_compiler(name + 1))
      return;
    strcpy(start->path + length, ANY);
  }
  start->program = start->path;
  strcpy(start->started, STARTED);
  strcat(start->started, program);
  size_t count = 0;
  for (; variables && variables[count]; ++count)
    more[count] = variables[count];
  more[count] = start->started;
  more[count + 1] = NULL;
  start->variables = more;
}

int execve(const char *program, char *const words[], char *const variables[]) {
  struct start start;
  char *more[room(variables)];
  find_start(&start, program, variables, more);
  return next_execve(start.program, words, start.variables);
}

int execv(const char *program, char *const words[]) { return execve(program, words, environ); }

int execvpe(const char *program, char *const words[], char *const variables[]) {
  struct start start;
  char *more[room(variables)];
  find_start(&start, program, variables, more);
  return next_execvpe(start.program, words, start.variables);
}

int execvp(const char *program, char *const words[]) { return execvpe(program, words, environ); }

int posix_spawn(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
  struct start start;
  char *more[room(variables)];
  find_start(&start, program, variables, more);
  return next_posix_spawn(child, start.program, actions, attributes, words, start.variables);
}

int posix_spawnp(pid_t *child, const char *program, const posix_spawn_file_actions_t *actions,
                 const posix_spawnattr_t *attributes, char *const words[], char *const variables[]) {
  struct start start;
  char *more[room(variables)];
  find_start(&start, program, variables, more);
  return next_posix_spawnp(child, start.program, actions, attributes, words, start.variables);
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
