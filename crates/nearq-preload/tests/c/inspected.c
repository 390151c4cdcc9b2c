/* A program to be inspected: threads that compete for a mutex until standard input ends. It prints the number under which it can be found.
   With `alone`, it has no threads; with `background`, the threads are those of a child, which has left the session and was forked while
   threads of the parent competed; with `exec`, it has threads, and after a byte of input becomes the same program without arguments; with
   `demoted`, it then changes to the user nobody. */

#include "check.h"

enum { THREADS = 4 };

static pthread_mutex_t mutexes[2] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER };
static long counts[2];
static int stop;

static void *fight(void *which)
{
    int at = (int)(intptr_t)which;
    for (int round = 0; !__atomic_load_n(&stop, __ATOMIC_RELAXED); round++) {
        SAME(pthread_mutex_lock(&mutexes[at]), 0);
        counts[at]++;
        /* Other threads come in the meantime, and wait. */
        if (round % 16 == 0)
            sched_yield();
        SAME(pthread_mutex_unlock(&mutexes[at]), 0);
    }
    return NULL;
}

static void found_as(const char *what)
{
    printf("%s %d\n", what, (int)getpid());
    SAME(fflush(stdout), 0);
}

static void until_the_end(void)
{
    char byte;
    while (read(0, &byte, 1) > 0)
        ;
}

static void be_looked_into(int at, const char *what)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(fight, (void *)(intptr_t)at);
    found_as(what);
    until_the_end();
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

static void in_the_background(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(fight, (void *)0);
    pid_t child = fork();
    if (child == 0) {
        alarm(300);
        SAME(setsid(), getpid());
        found_as("before its threads");
        be_looked_into(1, "child");
        exit(0);
    }
    found_as("parent");
    SAME(ended_well(child), 1);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
}

/* With threads, until there is a byte of input. */
static void before(void)
{
    char byte;
    for (int i = 0; i < THREADS; i++)
        start(fight, (void *)0);
    found_as("before");
    SAME(read(0, &byte, 1), 1);
}

int main(int count, char **arguments)
{
    alarm(300);
    if (count == 1) {
        be_looked_into(0, "program");
    } else if (strcmp(arguments[1], "background") == 0) {
        in_the_background();
    } else if (strcmp(arguments[1], "exec") == 0) {
        before();
        execl("/proc/self/exe", arguments[0], NULL);
        return 1;
    } else if (strcmp(arguments[1], "demoted") == 0) {
        before();
        SAME(setresuid(65534, 65534, 65534), 0);
        be_looked_into(1, "program");
    } else {
        found_as("program");
        until_the_end();
    }
    return 0;
}
