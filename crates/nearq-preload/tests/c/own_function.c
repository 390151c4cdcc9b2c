/* A program with its own version of a function of the C library's, which calls the next one, like a sanitizer that is linked into a
   program. It finds the others by version, as some sanitizers do. */

#include "check.h"

#include <dlfcn.h>

static long calls, count;

int pthread_mutex_lock(pthread_mutex_t *mutex)
{
    static int (*next)(pthread_mutex_t *);
    if (next == NULL)
        *(void **)&next = dlvsym(RTLD_NEXT, "pthread_mutex_lock", "GLIBC_2.2.5");
    if (next == NULL)
        *(void **)&next = dlsym(RTLD_NEXT, "pthread_mutex_lock");
    int outcome = next(mutex);
    calls++;
    return outcome;
}

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *fight(void *unused)
{
    (void)unused;
    for (int round = 0; round < 20000; round++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        count++;
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[4];
    alarm(60);
    for (int i = 0; i < 4; i++)
        threads[i] = start(fight, NULL);
    for (int i = 0; i < 4; i++)
        join(threads[i]);
    SAY(count);
    SAY(calls >= count);
    return 0;
}
