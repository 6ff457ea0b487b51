/* A library to preload: it counts the calls that change watched files, and lets some of them fail.

   Functions of libc are wrapped. A call is counted for each thread by itself, from 1, after
   faults_arm(). A rule lets the nth call of a kind fail, or that and all later ones: with an error,
   or by killing the process before the call. Each counted call is a line of the log. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* SQLite and Python call the names with 64, where a plain name would be an alias of it. */
#undef open
#undef openat

enum kind { WRITE, PWRITE64, FTRUNCATE, FALLOCATE, MKDIR, FSYNC, FDATASYNC, OPENAT, RENAME,
            RENAMEAT, RENAMEAT2, UNLINK, KINDS };

static const char *const NAMES[KINDS] = {
    "write", "pwrite64", "ftruncate", "fallocate", "mkdir", "fsync", "fdatasync", "openat",
    "rename", "renameat", "renameat2", "unlink"};

enum { MAX_PATHS = 64, KILL = 0 };

static struct rule { int nth, lasts, error; } rules[KINDS];
static char watched[MAX_PATHS][PATH_MAX];
static int path_count, log_fd = -1, armed;
static __thread int counts[KINDS];

void faults_watch(const char *path)
{
    if (path_count < MAX_PATHS)
        snprintf(watched[path_count++], PATH_MAX, "%s", path);
}

/* Return 0, or -1 if there is no such kind of call. */
int faults_inject(const char *name, int nth, int lasts, int error)
{
    for (int kind = 0; kind < KINDS; kind++)
        if (strcmp(name, NAMES[kind]) == 0) {
            rules[kind] = (struct rule){nth, lasts, error};
            return 0;
        }
    return -1;
}

void faults_arm(int log)
{
    log_fd = log;
    armed = 1;
}

static const char *find_watched(const char *path)
{
    for (int at = 0; at < path_count; at++)
        if (strcmp(path, watched[at]) == 0)
            return watched[at];
    return NULL;
}

static const char *find_open(int fd)
{
    static const char deleted[] = " (deleted)";
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return NULL;
    path[length] = 0;
    size_t end = length - (sizeof deleted - 1);
    if (length > (ssize_t)sizeof deleted && strcmp(path + end, deleted) == 0)
        path[end] = 0;
    return find_watched(path);
}

/* Count a call on a watched file; return 1 with errno if it fails. */
static int count_call(enum kind kind, const char *path, const char *mode)
{
    char line[PATH_MAX + 128];
    struct rule *rule = &rules[kind];
    int nth = ++counts[kind];
    int fails = rule->nth && (rule->lasts ? nth >= rule->nth : nth == rule->nth);
    int length = snprintf(line, sizeof line, "%ld %s %s %s %s\n", syscall(SYS_gettid), NAMES[kind],
                          mode, fails ? "fails" : "passes", path);
    syscall(SYS_write, log_fd, line, (size_t)length);
    if (!fails)
        return 0;
    if (rule->error == KILL)
        for (;;)
            syscall(SYS_kill, getpid(), SIGKILL);
    errno = rule->error;
    return 1;
}

static int fails_on_path(enum kind kind, const char *path, const char *mode)
{
    const char *found = armed && path ? find_watched(path) : NULL;
    return found && count_call(kind, found, mode);
}

/* A name that is replaced counts under the new one. */
static int fails_on_paths(enum kind kind, const char *from, const char *to)
{
    const char *found = armed && (find_watched(from) || find_watched(to)) ? to : NULL;
    return found && count_call(kind, found, "-");
}

static int fails_on_open(enum kind kind, int fd)
{
    int kept = errno;
    const char *found = armed && fd > 2 ? find_open(fd) : NULL;
    errno = kept;
    return found && count_call(kind, found, "-");
}

#define NEXT(type, name, ...) \
    static type (*next)(__VA_ARGS__); \
    if (!next) \
        next = (type (*)(__VA_ARGS__))dlsym(RTLD_NEXT, name)

ssize_t write(int fd, const void *data, size_t size)
{
    NEXT(ssize_t, "write", int, const void *, size_t);
    return fails_on_open(WRITE, fd) ? -1 : next(fd, data, size);
}

ssize_t pwrite64(int fd, const void *data, size_t size, off64_t at)
{
    NEXT(ssize_t, "pwrite64", int, const void *, size_t, off64_t);
    return fails_on_open(PWRITE64, fd) ? -1 : next(fd, data, size, at);
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t at)
{
    return pwrite64(fd, data, size, at);
}

int ftruncate64(int fd, off64_t size)
{
    NEXT(int, "ftruncate64", int, off64_t);
    return fails_on_open(FTRUNCATE, fd) ? -1 : next(fd, size);
}

int ftruncate(int fd, off_t size)
{
    return ftruncate64(fd, size);
}

int fallocate64(int fd, int mode, off64_t at, off64_t size)
{
    NEXT(int, "fallocate64", int, int, off64_t, off64_t);
    return fails_on_open(FALLOCATE, fd) ? -1 : next(fd, mode, at, size);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    return fallocate64(fd, mode, at, size);
}

/* This one returns the error. */
int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    NEXT(int, "posix_fallocate64", int, off64_t, off64_t);
    return fails_on_open(FALLOCATE, fd) ? errno : next(fd, at, size);
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    return posix_fallocate64(fd, at, size);
}

int mkdir(const char *path, mode_t mode)
{
    NEXT(int, "mkdir", const char *, mode_t);
    return fails_on_path(MKDIR, path, "-") ? -1 : next(path, mode);
}

int fsync(int fd)
{
    NEXT(int, "fsync", int);
    return fails_on_open(FSYNC, fd) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    NEXT(int, "fdatasync", int);
    return fails_on_open(FDATASYNC, fd) ? -1 : next(fd);
}

static mode_t read_mode(int flags, va_list rest)
{
    return flags & (O_CREAT | O_TMPFILE) ? va_arg(rest, mode_t) : 0;
}

static int open_at(int folder, const char *path, int flags, mode_t mode)
{
    NEXT(int, "openat64", int, const char *, int, ...);
    const char *makes = flags & O_CREAT ? "creates" : "-";
    return fails_on_path(OPENAT, path, makes) ? -1 : next(folder, path, flags, mode);
}

#define OPEN(name, before, folder) \
    int name(before const char *path, int flags, ...) \
    { \
        va_list rest; \
        va_start(rest, flags); \
        mode_t mode = read_mode(flags, rest); \
        va_end(rest); \
        return open_at(folder, path, flags, mode); \
    }
#define NOTHING
#define FOLDER int at,

OPEN(open64, NOTHING, AT_FDCWD)
OPEN(open, NOTHING, AT_FDCWD)
OPEN(openat64, FOLDER, at)
OPEN(openat, FOLDER, at)

DIR *opendir(const char *path)
{
    NEXT(DIR *, "opendir", const char *);
    return fails_on_path(OPENAT, path, "-") ? NULL : next(path);
}

int rename(const char *from, const char *to)
{
    NEXT(int, "rename", const char *, const char *);
    return fails_on_paths(RENAME, from, to) ? -1 : next(from, to);
}

int renameat(int from_at, const char *from, int to_at, const char *to)
{
    NEXT(int, "renameat", int, const char *, int, const char *);
    return fails_on_paths(RENAMEAT, from, to) ? -1 : next(from_at, from, to_at, to);
}

int renameat2(int from_at, const char *from, int to_at, const char *to, unsigned flags)
{
    NEXT(int, "renameat2", int, const char *, int, const char *, unsigned);
    return fails_on_paths(RENAMEAT2, from, to) ? -1 : next(from_at, from, to_at, to, flags);
}

int unlink(const char *path)
{
    NEXT(int, "unlink", const char *);
    return fails_on_path(UNLINK, path, "-") ? -1 : next(path);
}
