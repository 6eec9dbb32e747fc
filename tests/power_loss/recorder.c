/* Writes down, in their order, the calls of one program that change files below a folder.

   Loaded with LD_PRELOAD. POWER_LOSS_ROOT is the folder, POWER_LOSS_LOG the file of the log, which
   `recording.py` reads. One call at a time runs, so that the log has the order of the effects. */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

struct head {
    char what;
    uint64_t inode, offset;
    uint32_t first, second; /* bytes that follow */
} __attribute__((packed));

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static int is_below(const char *path)
{
    const char *root = getenv("POWER_LOSS_ROOT");
    size_t length = root ? strlen(root) : 0;
    return length && !strncmp(path, root, length) && (path[length] == '/' || !path[length]);
}

static void note(char what, uint64_t inode, uint64_t offset, const void *first, size_t n,
                 const void *second, size_t m)
{
    int kept = errno;
    struct head head = {what, inode, offset, (uint32_t)n, (uint32_t)m};
    struct iovec parts[] = {{&head, sizeof head}, {(void *)first, n}, {(void *)second, m}};
    int log = (int)syscall(SYS_openat, AT_FDCWD, getenv("POWER_LOSS_LOG"),
                           O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
    ssize_t length = (ssize_t)(sizeof head + n + m);
    if (log < 0 || syscall(SYS_writev, log, parts, 3) != length) {
        fputs("power_loss: the log cannot be written\n", stderr);
        abort();
    }
    close(log);
    errno = kept;
}

/* The absolute path of a name, without resolving links; empty when it cannot be told. */
static void name_of(int folder, const char *path, char *out)
{
    char link[64];
    ssize_t length = 0;
    *out = '\0';
    if (path[0] == '/') {
        snprintf(out, PATH_MAX, "%s", path);
        return;
    }
    if (folder == AT_FDCWD)
        snprintf(link, sizeof link, "/proc/self/cwd");
    else
        snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    length = readlink(link, out, PATH_MAX - 1);
    if (length < 0)
        length = 0;
    snprintf(out + length, PATH_MAX - (size_t)length, "/%s", path);
}

static int inode_below(int file, struct stat *about)
{
    char link[64], path[PATH_MAX];
    int kept = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length > 0)
        path[length] = '\0';
    int found = length > 0 && is_below(path) && !fstat(file, about);
    errno = kept;
    return found;
}

static int opened(int folder, const char *path, int flags, mode_t mode)
{
    char name[PATH_MAX];
    struct stat about;
    name_of(folder, path, name);
    if (!is_below(name) || !(flags & (O_CREAT | O_TRUNC)))
        return (int)syscall(SYS_openat, folder, path, flags, mode);
    pthread_mutex_lock(&lock);
    int is_new = lstat(name, &about) != 0;
    int file = (int)syscall(SYS_openat, folder, path, flags, mode);
    if (file >= 0 && !fstat(file, &about) && S_ISREG(about.st_mode)) {
        if (is_new)
            note('C', about.st_ino, 0, name, strlen(name), NULL, 0);
        else if (flags & O_TRUNC)
            note('T', about.st_ino, 0, NULL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&lock);
    return file;
}

#define MODE(flags, mode)                            \
    mode_t mode = 0;                                 \
    if ((flags) & (O_CREAT | O_TMPFILE)) {           \
        va_list rest;                                \
        va_start(rest, flags);                       \
        mode = va_arg(rest, mode_t);                 \
        va_end(rest);                                \
    }

EXPORT int open(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

EXPORT int open64(const char *path, int flags, ...)
{
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

EXPORT int openat(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return opened(folder, path, flags, mode);
}

EXPORT int openat64(int folder, const char *path, int flags, ...)
{
    MODE(flags, mode)
    return opened(folder, path, flags, mode);
}

static ssize_t written(int file, const void *bytes, size_t count, off_t at)
{
    struct stat about;
    int given = at >= 0;
    if (!inode_below(file, &about) || !S_ISREG(about.st_mode))
        return given ? syscall(SYS_pwrite64, file, bytes, count, at)
                     : syscall(SYS_write, file, bytes, count);
    pthread_mutex_lock(&lock);
    fstat(file, &about);
    if (!given)
        at = fcntl(file, F_GETFL) & O_APPEND ? about.st_size : lseek(file, 0, SEEK_CUR);
    ssize_t done = given ? syscall(SYS_pwrite64, file, bytes, count, at)
                         : syscall(SYS_write, file, bytes, count);
    if (done > 0)
        note('W', about.st_ino, (uint64_t)at, bytes, (size_t)done, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT ssize_t write(int file, const void *bytes, size_t count)
{
    return written(file, bytes, count, -1);
}

EXPORT ssize_t pwrite(int file, const void *bytes, size_t count, off_t at)
{
    return written(file, bytes, count, at);
}

EXPORT ssize_t pwrite64(int file, const void *bytes, size_t count, off_t at)
{
    return written(file, bytes, count, at);
}

/* Less than was asked for is a right answer: whoever calls goes on from there. */
EXPORT ssize_t writev(int file, const struct iovec *parts, int count)
{
    struct stat about;
    if (!inode_below(file, &about) || !S_ISREG(about.st_mode))
        return syscall(SYS_writev, file, parts, count);
    return count ? written(file, parts[0].iov_base, parts[0].iov_len, -1) : 0;
}

static int resized(int file, off_t size)
{
    struct stat about;
    pthread_mutex_lock(&lock);
    int done = (int)syscall(SYS_ftruncate, file, size);
    if (!done && inode_below(file, &about))
        note('T', about.st_ino, (uint64_t)size, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT int ftruncate(int file, off_t size)
{
    return resized(file, size);
}

EXPORT int ftruncate64(int file, off_t size)
{
    return resized(file, size);
}

static int synced(int file, long call)
{
    struct stat about;
    pthread_mutex_lock(&lock);
    int done = (int)syscall(call, file);
    if (!done && inode_below(file, &about))
        note('S', about.st_ino, 0, NULL, 0, NULL, 0);
    pthread_mutex_unlock(&lock);
    return done;
}

EXPORT int fsync(int file)
{
    return synced(file, SYS_fsync);
}

EXPORT int fdatasync(int file)
{
    return synced(file, SYS_fdatasync);
}

/* A call that names one or two files: what it is in the log, and whether it was made. */
static int named(char what, int done, int folder, const char *path, int to_folder, const char *to)
{
    char first[PATH_MAX], second[PATH_MAX] = "";
    struct stat about = {0};
    if (done)
        return done;
    name_of(folder, path, first);
    if (to)
        name_of(to_folder, to, second);
    if (!is_below(first) && !is_below(second))
        return done;
    if (what == 'M')
        lstat(first, &about);
    note(what, about.st_ino, 0, first, strlen(first), second, strlen(second));
    return done;
}

static int removed(const char *path)
{
    int done = (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0);
    return done && errno == EISDIR ? (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR)
                                   : done;
}

#define LOCKED(call)                      \
    pthread_mutex_lock(&lock);            \
    int done = (call);                    \
    pthread_mutex_unlock(&lock);          \
    return done

EXPORT int rename(const char *from, const char *to)
{
    LOCKED(named('R', (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0), AT_FDCWD, from,
                 AT_FDCWD, to));
}

EXPORT int renameat(int folder, const char *from, int to_folder, const char *to)
{
    LOCKED(named('R', (int)syscall(SYS_renameat2, folder, from, to_folder, to, 0), folder, from,
                 to_folder, to));
}

EXPORT int link(const char *from, const char *to)
{
    LOCKED(named('L', (int)syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0), AT_FDCWD, from,
                 AT_FDCWD, to));
}

EXPORT int linkat(int folder, const char *from, int to_folder, const char *to, int flags)
{
    LOCKED(named('L', (int)syscall(SYS_linkat, folder, from, to_folder, to, flags), folder, from,
                 to_folder, to));
}

EXPORT int unlink(const char *path)
{
    LOCKED(named('U', (int)syscall(SYS_unlinkat, AT_FDCWD, path, 0), AT_FDCWD, path, 0, NULL));
}

EXPORT int unlinkat(int folder, const char *path, int flags)
{
    LOCKED(named('U', (int)syscall(SYS_unlinkat, folder, path, flags), folder, path, 0, NULL));
}

EXPORT int remove(const char *path)
{
    LOCKED(named('U', removed(path), AT_FDCWD, path, 0, NULL));
}

EXPORT int rmdir(const char *path)
{
    LOCKED(named('U', (int)syscall(SYS_unlinkat, AT_FDCWD, path, AT_REMOVEDIR), AT_FDCWD, path, 0,
                 NULL));
}

EXPORT int mkdir(const char *path, mode_t mode)
{
    LOCKED(named('M', (int)syscall(SYS_mkdirat, AT_FDCWD, path, mode), AT_FDCWD, path, 0, NULL));
}

EXPORT int mkdirat(int folder, const char *path, mode_t mode)
{
    LOCKED(named('M', (int)syscall(SYS_mkdirat, folder, path, mode), folder, path, 0, NULL));
}

/* Ways to write that the log does not have: callers fall back to `write`. */
static int unknown(void)
{
    errno = EINVAL;
    return -1;
}

EXPORT ssize_t sendfile(int to, int from, off_t *at, size_t count)
{
    struct stat about;
    return inode_below(to, &about) ? unknown() : syscall(SYS_sendfile, to, from, at, count);
}

EXPORT ssize_t sendfile64(int to, int from, off_t *at, size_t count)
{
    struct stat about;
    return inode_below(to, &about) ? unknown() : syscall(SYS_sendfile, to, from, at, count);
}

EXPORT ssize_t copy_file_range(int from, off_t *at, int to, off_t *to_at, size_t count,
                               unsigned flags)
{
    struct stat about;
    return inode_below(to, &about)
               ? unknown()
               : syscall(SYS_copy_file_range, from, at, to, to_at, count, flags);
}
