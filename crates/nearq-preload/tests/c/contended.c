/* Threads that compete for mutexes of each kind, so that they have to wait. */

#include "check.h"

enum { THREADS = 6, ROUNDS = 10000 };

static pthread_mutex_t mutexes[] = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP,
                                     PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP };
static long counts[4], missed;

static void *fight(void *unused)
{
    (void)unused;
    for (int round = 0; round < ROUNDS; round++) {
        int which = round % 4;
        pthread_mutex_t *mutex = &mutexes[which];
        struct timespec soon = after(CLOCK_REALTIME, 1), monotonic = after(CLOCK_MONOTONIC, 1);
        int outcome;
        switch (round / 4 % 4) {
        case 0:
            outcome = pthread_mutex_timedlock(mutex, &soon);
            break;
        case 1:
            outcome = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &monotonic);
            break;
        case 2:
            outcome = pthread_mutex_trylock(mutex);
            break;
        default:
            outcome = pthread_mutex_lock(mutex);
        }
        if (outcome != 0) {
            SAME(outcome == EBUSY || outcome == ETIMEDOUT, 1);
            __atomic_fetch_add(&missed, 1, __ATOMIC_RELAXED);
            continue;
        }
        if (which == 1)
            SAME(pthread_mutex_lock(mutex), 0);
        counts[which]++;
        if (round % 100 < 4)
            doze();
        if (which == 1)
            SAME(pthread_mutex_unlock(mutex), 0);
        SAME(pthread_mutex_unlock(mutex), 0);
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        threads[i] = start(fight, NULL);
    for (int i = 0; i < THREADS; i++)
        join(threads[i]);
    SAY(counts[0] + counts[1] + counts[2] + counts[3] + missed);
    for (int i = 0; i < 4; i++)
        SAY(pthread_mutex_destroy(&mutexes[i]));
    return 0;
}
