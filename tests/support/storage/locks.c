/* Stands in for the locks of other file systems; LOCKS chooses which:
 *   nfs   flock(2), "NFS details": an exclusive lock needs a file that is open for writing, a shared
 *         lock one that is open for reading
 *   none  there are no locks, as on Lustre without -o flock
 *   eio   the lock server has failed */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/syscall.h>
#include <unistd.h>

static int is(const char *kind)
{
    const char *locks = getenv("LOCKS");
    return locks && !strcmp(locks, kind);
}

static int refused(void)
{
    errno = is("none") ? ENOLCK : is("eio") ? EIO : 0;
    return errno != 0;
}

int flock(int file, int operation)
{
    if (refused())
        return -1;

    int access = syscall(SYS_fcntl, file, F_GETFL) & O_ACCMODE;
    int kind = operation & ~LOCK_NB;
    int lacks = (kind == LOCK_EX && access == O_RDONLY) || (kind == LOCK_SH && access == O_WRONLY);
    if (is("nfs") && lacks) {
        errno = EBADF;
        return -1;
    }

    return syscall(SYS_flock, file, operation);
}

static int control(int file, int command, void *argument)
{
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK ||
                command == F_OFD_SETLKW;
    return locks && refused() ? -1 : syscall(SYS_fcntl, file, command, argument);
}

int fcntl(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return control(file, command, argument);
}

int fcntl64(int file, int command, ...)
{
    va_list arguments;
    va_start(arguments, command);
    void *argument = va_arg(arguments, void *);
    va_end(arguments);
    return control(file, command, argument);
}
