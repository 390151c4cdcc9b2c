/* Waiting needs no memory: many threads wait for a mutex and a condition, and conditions are used with a mutex that stays the C library's,
   for the first time when the system no longer provides memory. */

#include "check.h"
#include <sys/resource.h>

enum { THREADS = 200, CONDVARS = 6000 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, foreign;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER, condvars[CONDVARS];
static pthread_t threads[THREADS];
static int signalled, begin[2], begin_foreign[2], begun, value, was_signalled;

static int now_of(int *what, pthread_mutex_t *under)
{
    SAME(pthread_mutex_lock(under), 0);
    int now = *what;
    SAME(pthread_mutex_unlock(under), 0);
    return now;
}

static void *wait_in_crowd(void *unused)
{
    char byte;
    SAME(read(begin[0], &byte, 1), 1);
    SAME(pthread_mutex_lock(&mutex), 0);
    begun++;
    while (value == 0)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void *wait_with_foreign(void *place)
{
    char byte;
    SAME(read(begin_foreign[0], &byte, 1), 1);
    SAME(pthread_mutex_lock(&foreign), 0);
    signalled++;
    while (!was_signalled)
        SAME(pthread_cond_wait(place, &foreign), 0);
    SAME(pthread_mutex_unlock(&foreign), 0);
    return NULL;
}

static void in_a_crowd(void)
{
    for (int i = 0; i < THREADS; i++)
        SAME(write(begin[1], "x", 1), 1);
    while (now_of(&begun, &mutex) != THREADS)
        rest(5);
    SAME(pthread_mutex_lock(&mutex), 0);
    value = 1;
    SAME(pthread_cond_broadcast(&condvar), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < THREADS; i++)
        SAME(join_in_time(threads[i]), NULL);
    SAY(begun);
}

static void with_foreign_ones(pthread_t waits)
{
    struct timespec past = { 1, 0 };
    SAME(pthread_mutex_lock(&foreign), 0);
    for (int i = 0; i < CONDVARS - 1; i++)
        SAME(pthread_cond_timedwait(&condvars[i], &foreign, &past), ETIMEDOUT);
    SAME(pthread_mutex_unlock(&foreign), 0);
    SAME(write(begin_foreign[1], "x", 1), 1);
    while (!now_of(&signalled, &foreign))
        rest(5);
    SAME(pthread_mutex_lock(&foreign), 0);
    was_signalled = 1;
    SAME(pthread_mutex_unlock(&foreign), 0);
    SAME(pthread_cond_signal(&condvars[CONDVARS - 1]), 0);
    SAME(join_in_time(waits), NULL);
    SAY(signalled);
    for (int i = 0; i < CONDVARS; i++)
        SAME(pthread_cond_destroy(&condvars[i]), 0);
}

static void limit(void)
{
    struct rlimit none = { 4096, RLIM_INFINITY };
    SAME(getrlimit(RLIMIT_AS, &none), 0);
    none.rlim_cur = 4096;
    SAME(setrlimit(RLIMIT_AS, &none), 0);
}

static void no_limit(void)
{
    struct rlimit all;
    SAME(getrlimit(RLIMIT_AS, &all), 0);
    all.rlim_cur = all.rlim_max;
    SAME(setrlimit(RLIMIT_AS, &all), 0);
}

/* The thread that answers for the program, if the environment asks for one, begins before the memory ends: the C library ends a program
   whose thread begins without memory. */
static void wait_for_the_server(void)
{
    char socket[4096];
    const char *folder = getenv("XDG_RUNTIME_DIR");
    if (!getenv("NEARQ_CONTROL") || !folder)
        return;
    snprintf(socket, sizeof socket, "%s/nearq/%d", folder, (int)getpid());
    while (access(socket, F_OK) != 0)
        rest(5);
}

/* No thread can be created, and the program goes on alone. */
static void alone(void)
{
    pthread_t thread;
    struct timespec soon = after(CLOCK_REALTIME, 10);
    limit();
    SAY(pthread_create(&thread, NULL, wait_in_crowd, NULL));
    SAME(pthread_mutex_lock(&mutex), 0);
    int outcome;
    while ((outcome = pthread_cond_timedwait(&condvar, &mutex, &soon)) == 0)
        ;
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(outcome);
    no_limit();
}

int main(void)
{
    alarm(250);
    alone();
    pthread_attr_t small;
    pthread_mutexattr_t inherits;
    SAME(pthread_attr_init(&small), 0);
    SAME(pthread_attr_setstacksize(&small, 65536), 0);
    SAME(pthread_mutexattr_init(&inherits), 0);
    SAME(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT), 0);
    SAME(pthread_mutex_init(&foreign, &inherits), 0);
    SAME(pipe(begin), 0);
    SAME(pipe(begin_foreign), 0);
    for (int i = 0; i < THREADS; i++)
        SAME(pthread_create(&threads[i], &small, wait_in_crowd, NULL), 0);
    pthread_t waits;
    SAME(pthread_create(&waits, &small, wait_with_foreign, &condvars[CONDVARS - 1]), 0);
    wait_for_the_server();
    rest(50);
    limit();
    /* By then, nothing is left of what was available. */
    with_foreign_ones(waits);
    in_a_crowd();
    return 0;
}
