/* A signal handler that interrupts a wait takes another mutex, waits for it, and returns: the wait that it has interrupted goes on. */

#include "check.h"
#include <signal.h>

enum { THREADS = 4, WAYS = 5 };

static pthread_mutex_t waited_for = PTHREAD_MUTEX_INITIALIZER, of_handler = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static volatile int handlers_begun, stop, value;
static int ready, went_on;
static long handled, count;

static void handler(int signal)
{
    (void)signal;
    __atomic_add_fetch(&handlers_begun, 1, __ATOMIC_SEQ_CST);
    SAME(pthread_mutex_lock(&of_handler), 0);
    handled++;
    SAME(pthread_mutex_unlock(&of_handler), 0);
}

static int wait_by(int way)
{
    struct timespec late = after(CLOCK_REALTIME, 60000);
    switch (way) {
    case 0:
        return pthread_mutex_lock(&waited_for);
    case 1:
        return pthread_mutex_timedlock(&waited_for, &late);
    case 2:
        return pthread_mutex_clocklock(&waited_for, CLOCK_REALTIME, &late);
    case 3:
        return value ? 0 : pthread_cond_wait(&condvar, &waited_for);
    default:
        return value ? 0 : pthread_cond_timedwait(&condvar, &waited_for, &late);
    }
}

static void *wait_and_go_on(void *argument)
{
    int way = (int)(intptr_t)argument;
    if (way >= 3)
        SAME(pthread_mutex_lock(&waited_for), 0);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    SAME(wait_by(way), 0);
    while (way >= 3 && !value)
        SAME(wait_by(way), 0);
    went_on++;
    SAME(pthread_mutex_unlock(&waited_for), 0);
    return NULL;
}

static void until(const volatile int *what, int number)
{
    while (__atomic_load_n(what, __ATOMIC_SEQ_CST) != number)
        doze();
}

/* All waiting threads are interrupted, or only the one that came first. */
static void interrupted(int way, int all)
{
    pthread_t threads[THREADS];
    int interrupts = all ? THREADS : 1;
    ready = went_on = value = handlers_begun = 0;
    SAME(pthread_mutex_lock(&of_handler), 0);
    SAME(pthread_mutex_lock(&waited_for), 0);
    for (int i = 0; i < THREADS; i++) {
        threads[i] = start(wait_and_go_on, (void *)(intptr_t)way);
        if (way >= 3)
            SAME(pthread_mutex_unlock(&waited_for), 0);
        until(&ready, i + 1);
        if (way >= 3)
            SAME(pthread_mutex_lock(&waited_for), 0);
        else
            rest(2);
    }
    for (int i = 0; i < interrupts; i++)
        SAME(pthread_kill(threads[i], SIGUSR1), 0);
    until(&handlers_begun, interrupts);
    rest(2);
    SAME(pthread_mutex_unlock(&of_handler), 0);
    value = 1;
    SAME(pthread_cond_broadcast(&condvar), 0);
    SAME(pthread_mutex_unlock(&waited_for), 0);
    for (int i = 0; i < THREADS; i++)
        SAME(join_in_time(threads[i]), NULL);
    printf("way %d: %d went on\n", way, went_on);
}

static void *wait_often(void *unused)
{
    for (int i = 0; i < 2000; i++) {
        SAME(pthread_mutex_lock(&waited_for), 0);
        count++;
        if (i % 16 == 0) {
            struct timespec now_ = now(CLOCK_REALTIME);
            pthread_cond_timedwait(&condvar, &waited_for, &now_);
        }
        SAME(pthread_mutex_unlock(&waited_for), 0);
    }
    return unused;
}

static void *take_the_handlers(void *unused)
{
    while (!stop) {
        SAME(pthread_mutex_lock(&of_handler), 0);
        for (volatile int i = 0; i < 300; i++)
            ;
        SAME(pthread_mutex_unlock(&of_handler), 0);
    }
    return unused;
}

/* At any moment of a wait. */
static void interrupted_anywhere(void)
{
    pthread_t threads[THREADS], other;
    sigset_t interrupts;
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(wait_often, NULL);
    SAME(sigemptyset(&interrupts), 0);
    SAME(sigaddset(&interrupts, SIGUSR1), 0);
    SAME(pthread_sigmask(SIG_BLOCK, &interrupts, NULL), 0);
    other = start(take_the_handlers, NULL);
    for (int i = 0; i < 2000; i++) {
        pthread_kill(threads[i % THREADS], SIGUSR1);
        if (i % 16 == 0)
            doze();
    }
    for (int i = 0; i < THREADS; i++)
        SAME(join_in_time(threads[i]), NULL);
    stop = 1;
    SAME(join_in_time(other), NULL);
    SAY(count);
    SAY(handled > 0);
}

int main(void)
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    SAME(sigaction(SIGUSR1, &action, NULL), 0);
    alarm(250);
    for (int way = 0; way < WAYS; way++)
        for (int all = 0; all < 2; all++)
            interrupted(way, all);
    interrupted_anywhere();
    return 0;
}
