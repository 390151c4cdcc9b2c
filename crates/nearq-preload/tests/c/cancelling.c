/* Threads that are cancelled while they wait for a condition. */

#include "check.h"

static pthread_mutex_t mutex;
static pthread_cond_t condvar;
static cnd_t condvar11;
static int waiting, go, cleaned;

enum way { WAIT, TIMED, CLOCK, C11 };

static void clean(void *unused)
{
    (void)unused;
    cleaned++;
    /* This thread holds it: otherwise an error-checking mutex would report an error, and a robust one could not be unlocked. */
    SAME(pthread_mutex_unlock(&mutex), 0);
}

static int wait_by(enum way way)
{
    struct timespec late = after(CLOCK_REALTIME, 600000), monotonic = after(CLOCK_MONOTONIC, 600000);
    switch (way) {
    case WAIT:
        return pthread_cond_wait(&condvar, &mutex);
    case TIMED:
        return pthread_cond_timedwait(&condvar, &mutex, &late);
    case CLOCK:
        return pthread_cond_clockwait(&condvar, &mutex, CLOCK_MONOTONIC, &monotonic);
    case C11:
        return cnd_wait(&condvar11, (mtx_t *)&mutex);
    }
    return -1;
}

static void *wait_for_ever(void *way)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    waiting++;
    for (;;)
        SAME(wait_by((enum way)(intptr_t)way), 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void until_waiting(int count)
{
    for (int is = -1; is != count; sched_yield()) {
        SAME(pthread_mutex_lock(&mutex), 0);
        is = waiting;
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
}

static void make(int kind, int robust, int shared_condvar)
{
    pthread_mutexattr_t *attributes = type(kind);
    pthread_condattr_t of_condvar;
    SAME(pthread_mutexattr_setrobust(attributes, robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED), 0);
    SAME(pthread_mutex_init(&mutex, attributes), 0);
    SAME(pthread_condattr_init(&of_condvar), 0);
    SAME(pthread_condattr_setpshared(&of_condvar, shared_condvar ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE), 0);
    SAME(pthread_cond_init(&condvar, &of_condvar), 0);
    SAME(cnd_init(&condvar11), thrd_success);
    waiting = go = cleaned = 0;
}

static void while_it_waits(const char *name, int kind, int robust, int shared_condvar)
{
    printf("-- %s\n", name);
    /* If the condition variable is shared, each takes a second. */
    enum way last = shared_condvar ? (enum way)rounds(WAIT, C11) : C11;
    for (enum way way = WAIT; way <= last; way++) {
        make(kind, robust, shared_condvar);
        pthread_t thread = start(wait_for_ever, (void *)(intptr_t)way);
        until_waiting(1);
        if (way % 2)
            rest(20);
        SAY(pthread_cancel(thread));
        SAY(join(thread) == PTHREAD_CANCELED);
        SAY(cleaned);
        SAY(pthread_cond_destroy(&condvar));
        cnd_destroy(&condvar11);
        SAY(pthread_mutex_destroy(&mutex));
    }
}

/* Cancelled before it waits. */
static void *cancelled_first(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    SAME(pthread_cancel(pthread_self()), 0);
    pthread_cond_wait(&condvar, &mutex);
    pthread_cleanup_pop(0);
    return NULL;
}

/* While it may not be cancelled, it waits as other threads do; then it ends at the next wait. */
static void *not_now(void *unused)
{
    (void)unused;
    SAME(pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, NULL), 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    waiting++;
    while (!go)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    /* Waits neither without end nor not at all. */
    struct timespec soon = after(CLOCK_REALTIME, 20);
    int outcome;
    while ((outcome = pthread_cond_timedwait(&condvar, &mutex, &soon)) == 0)
        ;
    SAME(outcome, ETIMEDOUT);
    SAME(has_come(CLOCK_REALTIME, soon), 1);
    go++;
    SAME(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, NULL), 0);
    pthread_cond_wait(&condvar, &mutex);
    pthread_cleanup_pop(0);
    return NULL;
}

/* Of the asynchronous type, which must not apply during the wait. */
static void *asynchronous(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    waiting++;
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    for (;;)
        pthread_cond_wait(&condvar, &mutex);
    pthread_cleanup_pop(0);
    return NULL;
}

static void states(void)
{
    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    pthread_t thread = start(cancelled_first, NULL);
    SAY(join(thread) == PTHREAD_CANCELED);
    SAY(cleaned);

    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    thread = start(not_now, NULL);
    until_waiting(1);
    SAY(pthread_cancel(thread));
    rest(20);
    SAME(pthread_mutex_lock(&mutex), 0);
    SAY(cleaned);
    go = 1;
    SAME(pthread_cond_signal(&condvar), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(join(thread) == PTHREAD_CANCELED);
    SAY(cleaned);
    SAY(go);

    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    thread = start(asynchronous, NULL);
    until_waiting(1);
    rest(20);
    SAY(pthread_cancel(thread));
    SAY(join(thread) == PTHREAD_CANCELED);
    SAY(cleaned);
}

/* A notification is not lost with a thread that ends. */
static void *wait_for_go(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    waiting++;
    while (!go)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    go--;
    pthread_cleanup_pop(1);
    return NULL;
}

static void notified_and_cancelled(void)
{
    int went = 0;
    for (int round = 0, all = rounds(60, 400); round < all; round++) {
        make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
        pthread_t threads[3];
        for (int i = 0; i < 3; i++)
            threads[i] = start(wait_for_go, NULL);
        until_waiting(3);
        SAME(pthread_mutex_lock(&mutex), 0);
        go = 2;
        SAME(pthread_cond_signal(&condvar), 0);
        SAME(pthread_cond_signal(&condvar), 0);
        if (round % 2)
            SAME(pthread_cancel(threads[0]), 0);
        SAME(pthread_mutex_unlock(&mutex), 0);
        if (round % 2 == 0)
            SAME(pthread_cancel(threads[0]), 0);
        if (join(threads[0]) == NULL) {
            /* It went on, and one of the others still waits. */
            SAME(pthread_mutex_lock(&mutex), 0);
            go++;
            SAME(pthread_cond_signal(&condvar), 0);
            SAME(pthread_mutex_unlock(&mutex), 0);
        }
        for (int i = 1; i < 3; i++)
            SAME(join(threads[i]), NULL);
        SAME(cleaned, 3);
        SAME(pthread_cond_destroy(&condvar), 0);
        SAME(pthread_mutex_destroy(&mutex), 0);
        went++;
    }
    SAY(went);
}

/* Many threads, cancelled at any moment. */
static void *wait_and_wait(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    for (;;) {
        struct timespec soon = after(CLOCK_REALTIME, 0);
        soon.tv_nsec += soon.tv_nsec < 999900000 ? 50000 : 0;
        pthread_cond_timedwait(&condvar, &mutex, &soon);
        pthread_cond_signal(&condvar);
    }
    pthread_cleanup_pop(0);
    return NULL;
}

static void at_any_moment(void)
{
    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    for (int round = 0, all = rounds(50, 300); round < all; round++) {
        pthread_t threads[4];
        for (int i = 0; i < 4; i++)
            threads[i] = start(wait_and_wait, NULL);
        for (int i = 0; i < round % 7; i++)
            sched_yield();
        for (int i = 0; i < 4; i++)
            SAME(pthread_cancel(threads[i]), 0);
        for (int i = 0; i < 4; i++)
            SAME(join(threads[i]) == PTHREAD_CANCELED, 1);
    }
    SAY(pthread_mutex_destroy(&mutex));
    SAY(cleaned);
}

/* Cancelled at the moment when it begins to wait, for ever. */
static int begins;

static void *begin(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    __atomic_store_n(&begins, 1, __ATOMIC_SEQ_CST);
    for (;;)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void as_it_begins(void)
{
    int went = 0;
    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    for (int round = 0, all = rounds(700, 20000); round < all; round++) {
        begins = 0;
        pthread_t thread = start(begin, NULL);
        while (!__atomic_load_n(&begins, __ATOMIC_SEQ_CST))
            ;
        for (volatile int i = 0; i < round % 300; i++)
            ;
        SAME(pthread_cancel(thread), 0);
        SAME(join_in_time(thread) == PTHREAD_CANCELED, 1);
        went++;
    }
    SAY(went);
    SAY(cleaned);
}

/* A thread that is cancelled has not consumed a notification: what is given is taken while a thread waits. */
static int given, workers_waiting, end;

static void stop_working(void *unused)
{
    (void)unused;
    workers_waiting--;
    SAME(pthread_mutex_unlock(&mutex), 0);
}

static void *work(void *unused)
{
    (void)unused;
    for (int ends = 0; !ends;) {
        SAME(pthread_mutex_lock(&mutex), 0);
        pthread_cleanup_push(stop_working, NULL);
        workers_waiting++;
        while (!given && !end)
            SAME(pthread_cond_wait(&condvar, &mutex), 0);
        given -= given > 0;
        ends = end;
        pthread_cleanup_pop(1);
    }
    return NULL;
}

static void workers_are_replaced(void)
{
    enum { WORKERS = 5 };
    pthread_t threads[WORKERS];
    make(PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    for (int i = 0; i < WORKERS; i++)
        threads[i] = start(work, NULL);
    int went = 0;
    for (int round = 0, all = rounds(300, 20000); round < all; round++) {
        pthread_t *one = &threads[round * 7 % WORKERS];
        SAME(pthread_mutex_lock(&mutex), 0);
        given++;
        SAME(pthread_mutex_unlock(&mutex), 0);
        if (round % 2)
            SAME(pthread_cond_signal(&condvar), 0);
        SAME(pthread_cancel(*one), 0);
        if (round % 2 == 0)
            SAME(pthread_cond_signal(&condvar), 0);
        SAME(join_in_time(*one) == PTHREAD_CANCELED, 1);
        *one = start(work, NULL);
        struct timespec late = after(CLOCK_MONOTONIC, 20000);
        for (int left = 1; left; sched_yield()) {
            SAME(pthread_mutex_lock(&mutex), 0);
            left = given;
            SAME(pthread_mutex_unlock(&mutex), 0);
            SAME(has_come(CLOCK_MONOTONIC, late), 0);
        }
        went++;
    }
    SAME(pthread_mutex_lock(&mutex), 0);
    end = 1;
    SAME(pthread_cond_broadcast(&condvar), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < WORKERS; i++)
        SAME(join_in_time(threads[i]), NULL);
    SAY(went);
    SAY(workers_waiting);
}

int main(void)
{
    while_it_waits("normal", PTHREAD_MUTEX_NORMAL, 0, 0);
    while_it_waits("error-checking", PTHREAD_MUTEX_ERRORCHECK, 0, 0);
    while_it_waits("recursive", PTHREAD_MUTEX_RECURSIVE, 0, 0);
    while_it_waits("robust", PTHREAD_MUTEX_NORMAL, 1, 0);
    while_it_waits("error-checking, shared condvar", PTHREAD_MUTEX_ERRORCHECK, 0, 1);
    states();
    notified_and_cancelled();
    at_any_moment();
    as_it_begins();
    workers_are_replaced();
    return 0;
}
