/* LD_PRELOAD: fsync and fdatasync take as many more seconds as the file named by SLOW_DISK says, as on a failing disk. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int synced(const char *name, int descriptor)
{
    double seconds = 0;
    const char *path = getenv("SLOW_DISK");
    FILE *file = path ? fopen(path, "r") : NULL;
    if (file && fscanf(file, "%lf", &seconds) != 1)
        seconds = 0;
    if (file)
        fclose(file);
    struct timespec left = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
    while (nanosleep(&left, &left))
        ;
    return ((int (*)(int))dlsym(RTLD_NEXT, name))(descriptor);
}

int fsync(int descriptor)
{
    return synced("fsync", descriptor);
}

int fdatasync(int descriptor)
{
    return synced("fdatasync", descriptor);
}
