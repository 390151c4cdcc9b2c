/* Each function of condition variables, with mutexes of each kind. What is printed must not depend on whose they are. */

#include "check.h"

struct pair {
    pthread_mutex_t mutex;
    pthread_cond_t condvar;
    int value, waiting;
};

static struct pair pair;

static void make(int kind, int robust, int inherit, int shared_condvar, clockid_t clock)
{
    pthread_mutexattr_t *attributes = type(kind);
    pthread_condattr_t of_condvar;
    SAME(pthread_mutexattr_setrobust(attributes, robust ? PTHREAD_MUTEX_ROBUST : PTHREAD_MUTEX_STALLED), 0);
    SAME(pthread_mutexattr_setprotocol(attributes, inherit ? PTHREAD_PRIO_INHERIT : PTHREAD_PRIO_NONE), 0);
    memset(&pair, 0x5a, sizeof pair);
    pair.value = pair.waiting = 0;
    SAME(pthread_mutex_init(&pair.mutex, attributes), 0);
    SAME(pthread_condattr_init(&of_condvar), 0);
    SAME(pthread_condattr_setpshared(&of_condvar, shared_condvar ? PTHREAD_PROCESS_SHARED : PTHREAD_PROCESS_PRIVATE), 0);
    SAME(pthread_condattr_setclock(&of_condvar, clock), 0);
    SAME(pthread_cond_init(&pair.condvar, &of_condvar), 0);
}

static void *wait_for_value(void *wanted)
{
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    pair.waiting++;
    while (pair.value < (int)(intptr_t)wanted)
        SAME(pthread_cond_wait(&pair.condvar, &pair.mutex), 0);
    pair.waiting--;
    SAME(pthread_mutex_unlock(&pair.mutex), 0);
    return NULL;
}

static void until_waiting(int count)
{
    for (;;) {
        SAME(pthread_mutex_lock(&pair.mutex), 0);
        int waiting = pair.waiting;
        SAME(pthread_mutex_unlock(&pair.mutex), 0);
        if (waiting == count)
            return;
        sched_yield();
    }
}

static void set(int value, int (*notify)(pthread_cond_t *), int while_held)
{
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    pair.value = value;
    if (while_held)
        SAME(notify(&pair.condvar), 0);
    SAME(pthread_mutex_unlock(&pair.mutex), 0);
    if (!while_held)
        SAME(notify(&pair.condvar), 0);
}

/* How the deadlines of one pair work. */
static void deadlines(clockid_t clock)
{
    struct timespec no = { 1, 1000000000 }, past = { -5, 0 }, soon;
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &no));
    SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &past));
    soon = after(clock, 30);
    SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &soon));
    SAY(has_come(clock, soon));
    soon = after(CLOCK_MONOTONIC, 30);
    SAY(pthread_cond_clockwait(&pair.condvar, &pair.mutex, CLOCK_MONOTONIC, &soon));
    SAY(has_come(CLOCK_MONOTONIC, soon));
    soon = after(CLOCK_REALTIME, 30);
    SAY(pthread_cond_clockwait(&pair.condvar, &pair.mutex, CLOCK_REALTIME, &soon));
    SAY(has_come(CLOCK_REALTIME, soon));
    SAY(pthread_cond_clockwait(&pair.condvar, &pair.mutex, CLOCK_PROCESS_CPUTIME_ID, &soon));
    SAME(pthread_mutex_unlock(&pair.mutex), 0);
}

static void notifications(void)
{
    pthread_t threads[4];
    SAY(pthread_cond_signal(&pair.condvar));
    SAY(pthread_cond_broadcast(&pair.condvar));
    threads[0] = start(wait_for_value, (void *)1);
    until_waiting(1);
    set(1, pthread_cond_signal, 1);
    join(threads[0]);
    threads[0] = start(wait_for_value, (void *)2);
    until_waiting(1);
    set(2, pthread_cond_signal, 0);
    join(threads[0]);
    for (int held = 0; held < 2; held++) {
        for (int i = 0; i < 4; i++)
            threads[i] = start(wait_for_value, (void *)(intptr_t)(3 + held));
        until_waiting(4);
        set(3 + held, pthread_cond_broadcast, held);
        for (int i = 0; i < 4; i++)
            join(threads[i]);
    }
}

static void all_of(const char *name, int kind, int robust, int inherit, int shared_condvar, clockid_t clock)
{
    printf("-- %s\n", name);
    make(kind, robust, inherit, shared_condvar, clock);
    notifications();
    deadlines(clock);
    SAY(pthread_cond_destroy(&pair.condvar));
    SAY(pthread_mutex_destroy(&pair.mutex));
}

static void combinations(void)
{
    all_of("normal", PTHREAD_MUTEX_NORMAL, 0, 0, 0, CLOCK_REALTIME);
    all_of("normal, monotonic", PTHREAD_MUTEX_NORMAL, 0, 0, 0, CLOCK_MONOTONIC);
    all_of("error-checking", PTHREAD_MUTEX_ERRORCHECK, 0, 0, 0, CLOCK_REALTIME);
    all_of("recursive", PTHREAD_MUTEX_RECURSIVE, 0, 0, 0, CLOCK_MONOTONIC);
    all_of("adaptive", PTHREAD_MUTEX_ADAPTIVE_NP, 0, 0, 0, CLOCK_REALTIME);
    all_of("robust", PTHREAD_MUTEX_NORMAL, 1, 0, 0, CLOCK_REALTIME);
    all_of("robust, monotonic", PTHREAD_MUTEX_NORMAL, 1, 0, 0, CLOCK_MONOTONIC);
    all_of("inheriting", PTHREAD_MUTEX_NORMAL, 0, 1, 0, CLOCK_REALTIME);
    all_of("normal, shared condvar", PTHREAD_MUTEX_NORMAL, 0, 0, 1, CLOCK_REALTIME);
    all_of("recursive, shared monotonic condvar", PTHREAD_MUTEX_RECURSIVE, 0, 0, 1, CLOCK_MONOTONIC);
    all_of("robust, shared condvar", PTHREAD_MUTEX_NORMAL, 1, 0, 1, CLOCK_REALTIME);
}

/* One condition variable, first with mutexes of one kind, then of another. */
static void both_kinds_in_turn(void)
{
    static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
    for (int round = 0; round < 4; round++) {
        make(PTHREAD_MUTEX_NORMAL, round % 2, 0, 0, CLOCK_REALTIME);
        struct timespec soon = after(CLOCK_REALTIME, 10);
        SAME(pthread_mutex_lock(&pair.mutex), 0);
        SAY(pthread_cond_timedwait(&condvar, &pair.mutex, &soon));
        SAME(pthread_mutex_unlock(&pair.mutex), 0);
        SAY(pthread_cond_signal(&condvar));
    }
    SAY(pthread_cond_destroy(&condvar));
}

/* A mutex that checks reports a thread that does not hold it, and knows its holder after a wait. */
static void holders(void)
{
    for (int shared_condvar = 0; shared_condvar < 2; shared_condvar++) {
        make(PTHREAD_MUTEX_ERRORCHECK, 0, 0, shared_condvar, CLOCK_REALTIME);
        SAY(pthread_cond_wait(&pair.condvar, &pair.mutex));
        struct timespec soon = after(CLOCK_REALTIME, 10);
        SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &soon));
        SAY(pthread_mutex_lock(&pair.mutex));
        SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &soon));
        SAY(pthread_mutex_lock(&pair.mutex));
        SAY(pthread_mutex_unlock(&pair.mutex));
        SAY(pthread_mutex_unlock(&pair.mutex));
    }
}

/* A thread that waits for a long time, notified by one that has held the mutex for a long time, at a condition variable for several
 * processes. */
static void notified_after_long(void)
{
    make(PTHREAD_MUTEX_NORMAL, 0, 0, 1, CLOCK_REALTIME);
    pthread_t thread = start(wait_for_value, (void *)1);
    until_waiting(1);
    rest(700);
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    rest(500);
    pair.value = 1;
    SAME(pthread_cond_signal(&pair.condvar), 0);
    SAME(pthread_mutex_unlock(&pair.mutex), 0);
    SAY(join_in_time(thread) == NULL);
}

/* ---- C11 ---- */

static mtx_t mutex11;
static cnd_t condvar11;
static int value11;

static int wait11(void *unused)
{
    (void)unused;
    SAME(mtx_lock(&mutex11), thrd_success);
    while (!value11)
        SAME(cnd_wait(&condvar11, &mutex11), thrd_success);
    SAME(mtx_unlock(&mutex11), thrd_success);
    return 7;
}

static void c11(void)
{
    SAY(mtx_init(&mutex11, mtx_plain));
    SAY(cnd_init(&condvar11));
    thrd_t threads[3];
    for (int i = 0; i < 3; i++)
        SAME(thrd_create(&threads[i], wait11, NULL), thrd_success);
    mtx_lock(&mutex11);
    struct timespec soon = after(CLOCK_REALTIME, 20);
    int outcome;
    while ((outcome = cnd_timedwait(&condvar11, &mutex11, &soon)) == thrd_success)
        ;
    SAY(outcome);
    SAY(has_come(CLOCK_REALTIME, soon));
    value11 = 1;
    mtx_unlock(&mutex11);
    SAY(cnd_broadcast(&condvar11));
    for (int i = 0; i < 3; i++) {
        int result = 0;
        SAME(thrd_join(threads[i], &result), thrd_success);
        SAY(result);
    }
    SAY(cnd_signal(&condvar11));
    cnd_destroy(&condvar11);
    mtx_destroy(&mutex11);
}

/* ---- a queue with a few places between many threads ---- */

enum { PLACES = 3, MAKERS = 4, TAKERS = 4, ITEMS = 20000 };

static struct {
    pthread_mutex_t mutex;
    pthread_cond_t not_full, not_empty;
    long items[PLACES];
    int count;
    long sum;
} queue = { PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, PTHREAD_COND_INITIALIZER, { 0 }, 0, 0 };

static void *put(void *first)
{
    for (long item = (intptr_t)first; item < ITEMS; item += MAKERS) {
        pthread_mutex_lock(&queue.mutex);
        while (queue.count == PLACES)
            pthread_cond_wait(&queue.not_full, &queue.mutex);
        queue.items[queue.count++] = item;
        pthread_cond_signal(&queue.not_empty);
        pthread_mutex_unlock(&queue.mutex);
    }
    return NULL;
}

static void *take(void *unused)
{
    (void)unused;
    for (int i = 0; i < ITEMS / TAKERS; i++) {
        pthread_mutex_lock(&queue.mutex);
        while (queue.count == 0) {
            struct timespec late = after(CLOCK_REALTIME, 60000);
            SAME(pthread_cond_timedwait(&queue.not_empty, &queue.mutex, &late), 0);
        }
        queue.sum += queue.items[--queue.count];
        pthread_mutex_unlock(&queue.mutex);
        pthread_cond_signal(&queue.not_full);
    }
    return NULL;
}

static void queue_of_few_places(void)
{
    pthread_t threads[MAKERS + TAKERS];
    for (long i = 0; i < MAKERS; i++)
        threads[i] = start(put, (void *)i);
    for (int i = 0; i < TAKERS; i++)
        threads[MAKERS + i] = start(take, NULL);
    for (int i = 0; i < MAKERS + TAKERS; i++)
        join(threads[i]);
    SAY(queue.sum);
    SAY(queue.sum == (long)ITEMS * (ITEMS - 1) / 2);
}

#ifdef __x86_64__
/* As a program of the last century calls it. */
int old_timedwait(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
__asm__(".symver old_timedwait, pthread_cond_timedwait@GLIBC_2.2.5");

static void old_version(void)
{
    make(PTHREAD_MUTEX_NORMAL, 0, 0, 0, CLOCK_REALTIME);
    struct timespec soon = after(CLOCK_REALTIME, 10);
    pthread_cond_t old = PTHREAD_COND_INITIALIZER;
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    SAY(old_timedwait(&old, &pair.mutex, &soon));
    SAY(pthread_mutex_unlock(&pair.mutex));
}
#else
static void old_version(void) {}
#endif

static void *try_and_notify(void *is_shared)
{
    rest(30);
    SAY(pthread_mutex_trylock(&pair.mutex));
    rest(is_shared ? 30 : 0);
    SAME(pthread_cond_signal(&pair.condvar), 0);
    return NULL;
}

/* It is unlocked once, so the thread still holds it. */
static void held_twice(int is_shared)
{
    pthread_condattr_t attributes;
    struct timespec late = after(CLOCK_REALTIME, 20000);
    SAME(pthread_condattr_init(&attributes), 0);
    SAME(pthread_condattr_setpshared(&attributes, is_shared), 0);
    SAME(pthread_mutex_init(&pair.mutex, type(PTHREAD_MUTEX_RECURSIVE)), 0);
    SAME(pthread_cond_init(&pair.condvar, &attributes), 0);
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    SAME(pthread_mutex_lock(&pair.mutex), 0);
    pthread_t notifies = start(try_and_notify, is_shared ? &pair.mutex : NULL);
    SAY(pthread_cond_timedwait(&pair.condvar, &pair.mutex, &late));
    SAME(join_in_time(notifies), NULL);
    SAY(pthread_mutex_unlock(&pair.mutex));
    SAY(pthread_mutex_unlock(&pair.mutex));
    SAY(pthread_mutex_unlock(&pair.mutex));
    SAME(pthread_mutex_destroy(&pair.mutex), 0);
    SAME(pthread_cond_destroy(&pair.condvar), 0);
}

int main(void)
{
    combinations();
    held_twice(PTHREAD_PROCESS_PRIVATE);
    held_twice(PTHREAD_PROCESS_SHARED);
    both_kinds_in_turn();
    holders();
    c11();
    queue_of_few_places();
    old_version();
    notified_after_long();
    return 0;
}
