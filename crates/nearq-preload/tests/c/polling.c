/* A thread comes again and again for a mutex that another one holds for a long time and a third one waits for, with a short patience.
   Nothing is left of that: otherwise the process would run out of places to wait at, each of which takes 64 bytes, and other threads would
   have to poll. */

#include "check.h"

enum { POLLS = 16000, ENOUGH = POLLS * 64 / 2 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *use(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

/* Bytes of memory that the process uses. */
static long has(void)
{
    long size, pages;
    FILE *file = fopen("/proc/self/statm", "r");
    SAME(fscanf(file, "%ld %ld", &size, &pages), 2);
    SAME(fclose(file), 0);
    return pages * sysconf(_SC_PAGESIZE);
}

static void *poll(void *unused)
{
    struct timespec past = { 1, 0 };
    long before = 0;
    for (int i = 0; i < POLLS; i++) {
        if (i == POLLS / 100)
            before = has();
        SAME(pthread_mutex_timedlock(&mutex, &past), ETIMEDOUT);
    }
    SAY(has() - before < ENOUGH);
    return unused;
}

int main(void)
{
    alarm(250);
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_t user = start(use, NULL);
    rest(30);
    join(start(poll, NULL));
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAME(join_in_time(user), NULL);
    return 0;
}
