/* LD_PRELOAD: no thread can be started but some while the file named by NO_THREADS exists, as with pids.max. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

typedef int (*create)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*start)(void *), void *argument)
{
    static int started;
    const char *refused = getenv("NO_THREADS");
    if (refused && access(refused, F_OK) == 0 && started >= ALLOWED)
        return EAGAIN;
    started++;
    return ((create)dlsym(RTLD_NEXT, "pthread_create"))(thread, attributes, start, argument);
}
