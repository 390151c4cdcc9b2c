/* Threads that leave a wait for a mutex without returning from it: of the asynchronous type, cancelled. Other threads can use the mutex
 * afterwards. */

#include "check.h"

static pthread_mutex_t mutex;
static int ready;

enum way { LOCK, TIMED, CLOCK };

static void take_by(enum way way)
{
    struct timespec late = after(CLOCK_REALTIME, 600000), monotonic = after(CLOCK_MONOTONIC, 600000);
    switch (way) {
    case TIMED:
        SAME(pthread_mutex_timedlock(&mutex, &late), 0);
        break;
    case CLOCK:
        SAME(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, &monotonic), 0);
        break;
    default:
        SAME(pthread_mutex_lock(&mutex), 0);
    }
}

/* Several threads use the mutex, and all of them end. */
static void *use(void *unused)
{
    (void)unused;
    for (int i = 0; i < 300; i++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        if (i % 8 == 0)
            sched_yield();
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    return NULL;
}

static void is_usable(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(use, NULL);
    for (int i = 0; i < 4; i++)
        SAME(join_in_time(threads[i]), NULL);
}

static void make(int kind)
{
    SAME(pthread_mutex_init(&mutex, type(kind)), 0);
    ready = 0;
}

/* ---- cancelled at any moment ---- */

static void *asynchronous(void *way)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    take_by((enum way)(intptr_t)way);
    return NULL;
}

static void *deferred(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void until_ready(int count)
{
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) != count)
        sched_yield();
}

static void cancelled(int kind)
{
    for (enum way way = LOCK; way <= CLOCK; way++) {
        make(kind);
        SAME(pthread_mutex_lock(&mutex), 0);
        pthread_t threads[3], other = start(deferred, NULL);
        for (int i = 0; i < 3; i++)
            threads[i] = start(asynchronous, (void *)(intptr_t)way);
        until_ready(3);
        if (way != TIMED)
            rest(20);
        for (int i = 0; i < 3; i++)
            SAY(pthread_cancel(threads[i]));
        /* While another thread holds it. */
        for (int i = 0; i < 3; i++)
            SAY(join_in_time(threads[i]) == PTHREAD_CANCELED);
        SAY(pthread_mutex_unlock(&mutex));
        SAY(join_in_time(other) == NULL);
        is_usable();
    }
}

/* It already has the mutex, and waits for itself. */
static void *takes_it_twice(void *unused)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    SAME(pthread_mutex_lock(&mutex), 0);
    return unused;
}

static void waits_for_itself(void)
{
    make(PTHREAD_MUTEX_NORMAL);
    pthread_t thread = start(takes_it_twice, NULL);
    until_ready(1);
    rest(20);
    SAY(pthread_cancel(thread));
    SAY(join_in_time(thread) == PTHREAD_CANCELED);
}

int main(void)
{
    alarm(200);
    cancelled(PTHREAD_MUTEX_NORMAL);
    cancelled(PTHREAD_MUTEX_ERRORCHECK);
    cancelled(PTHREAD_MUTEX_RECURSIVE);
    waits_for_itself();
    return 0;
}
