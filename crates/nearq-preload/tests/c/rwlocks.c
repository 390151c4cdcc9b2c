/* Each function of reader-writer locks on each kind, readers that read again, and threads that are cancelled. What is printed must not
 * depend on whose locks they are. With an argument: what only ours do. */

#include "check.h"

static pthread_rwlock_t usual = PTHREAD_RWLOCK_INITIALIZER;
static pthread_rwlock_t writers_first = PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP;
static pthread_rwlock_t *subject;
static int (*step)(pthread_rwlock_t *);

static void *do_step(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)step(subject);
}

/* What a function returns to another thread. */
static int elsewhere(int (*function)(pthread_rwlock_t *), pthread_rwlock_t *lock)
{
    subject = lock;
    step = function;
    return (int)(intptr_t)join_in_time(start(do_step, NULL));
}

typedef int timed(pthread_rwlock_t *, const struct timespec *);
typedef int clocked(pthread_rwlock_t *, clockid_t, const struct timespec *);

static int until(timed *function, pthread_rwlock_t *lock)
{
    struct timespec time = after(CLOCK_REALTIME, 30);
    int outcome = function(lock, &time);
    if (outcome == ETIMEDOUT)
        SAME(has_come(CLOCK_REALTIME, time), 1);
    return outcome;
}

static int by_clock(clocked *function, pthread_rwlock_t *lock)
{
    struct timespec time = after(CLOCK_MONOTONIC, 30);
    int outcome = function(lock, CLOCK_MONOTONIC, &time);
    if (outcome == ETIMEDOUT)
        SAME(has_come(CLOCK_MONOTONIC, time), 1);
    return outcome;
}

static int read_soon(pthread_rwlock_t *lock) { return until(pthread_rwlock_timedrdlock, lock); }
static int write_soon(pthread_rwlock_t *lock) { return until(pthread_rwlock_timedwrlock, lock); }
static int read_by_clock(pthread_rwlock_t *lock) { return by_clock(pthread_rwlock_clockrdlock, lock); }
static int write_by_clock(pthread_rwlock_t *lock) { return by_clock(pthread_rwlock_clockwrlock, lock); }

static int read_long_ago(pthread_rwlock_t *lock)
{
    struct timespec time = { 1, 0 };
    return pthread_rwlock_timedrdlock(lock, &time);
}

static int write_before_all(pthread_rwlock_t *lock)
{
    struct timespec time = { -1, 0 };
    return pthread_rwlock_timedwrlock(lock, &time);
}

static int read_at_no_time(pthread_rwlock_t *lock)
{
    struct timespec time = { 1, 1000000000 };
    return pthread_rwlock_timedrdlock(lock, &time);
}

static int write_by_no_clock(pthread_rwlock_t *lock)
{
    struct timespec time = after(CLOCK_MONOTONIC, 30);
    return pthread_rwlock_clockwrlock(lock, CLOCK_PROCESS_CPUTIME_ID, &time);
}

static void all_of(const char *name, pthread_rwlock_t *lock)
{
    printf("-- %s\n", name);
    SAY(pthread_rwlock_rdlock(lock));
    SAY(pthread_rwlock_tryrdlock(lock));
    SAY(read_by_clock(lock));
    SAY(elsewhere(pthread_rwlock_tryrdlock, lock));
    /* A reader may leave for another one. */
    SAY(pthread_rwlock_unlock(lock));
    SAY(elsewhere(pthread_rwlock_trywrlock, lock));
    SAY(elsewhere(write_soon, lock));
    SAY(elsewhere(write_by_clock, lock));
    SAY(elsewhere(write_before_all, lock));
    SAY(elsewhere(write_by_no_clock, lock));
    SAY(read_at_no_time(lock));
    SAY(read_long_ago(lock));
    for (int i = 0; i < 4; i++)
        SAY(pthread_rwlock_unlock(lock));
    SAY(pthread_rwlock_wrlock(lock));
    SAY(pthread_rwlock_rdlock(lock));
    SAY(pthread_rwlock_wrlock(lock));
    SAY(read_soon(lock));
    SAY(write_by_clock(lock));
    SAY(read_at_no_time(lock));
    SAY(pthread_rwlock_tryrdlock(lock));
    SAY(pthread_rwlock_trywrlock(lock));
    SAY(elsewhere(pthread_rwlock_tryrdlock, lock));
    SAY(elsewhere(pthread_rwlock_trywrlock, lock));
    SAY(elsewhere(read_soon, lock));
    SAY(elsewhere(read_by_clock, lock));
    SAY(elsewhere(read_long_ago, lock));
    SAY(elsewhere(write_soon, lock));
    SAY(pthread_rwlock_unlock(lock));
    SAY(elsewhere(pthread_rwlock_trywrlock, lock) == 0 && pthread_rwlock_trywrlock(lock) == EBUSY);
}

static pthread_rwlock_t *of_kind(int kind, int shared)
{
    pthread_rwlock_t *lock = in_memory_of_both(sizeof(*lock));
    pthread_rwlockattr_t attributes;
    SAME(pthread_rwlockattr_init(&attributes), 0);
    SAME(pthread_rwlockattr_setkind_np(&attributes, kind), 0);
    SAME(pthread_rwlockattr_setpshared(&attributes, shared), 0);
    memset(lock, 0x5a, sizeof(*lock));
    SAME(pthread_rwlock_init(lock, &attributes), 0);
    SAME(pthread_rwlockattr_destroy(&attributes), 0);
    return lock;
}

/* ---- readers that read again ---- */

static void *write_once(void *lock)
{
    SAME(pthread_rwlock_wrlock(lock), 0);
    SAME(pthread_rwlock_unlock(lock), 0);
    return NULL;
}

static void *read_once(void *lock)
{
    SAME(pthread_rwlock_rdlock(lock), 0);
    SAME(pthread_rwlock_unlock(lock), 0);
    return NULL;
}

static void reads_again(pthread_rwlock_t *lock)
{
    for (int round = 0; round < rounds(6, 100); round++) {
        SAME(pthread_rwlock_rdlock(lock), 0);
        pthread_t writer = start(write_once, lock);
        rest(5);
        SAME(pthread_rwlock_rdlock(lock), 0);
        SAME(pthread_rwlock_tryrdlock(lock), 0);
        SAME(read_soon(lock), 0);
        /* Another thread, for which this one waits. */
        join_in_time(start(read_once, lock));
        /* Without a row a reader joins in one step: it needs no answer from the writer, which may have no CPU. */
        SAME(elsewhere(pthread_rwlock_tryrdlock, lock), 0);
        SAME(elsewhere(read_long_ago, lock), 0);
        for (int i = 0; i < 6; i++)
            SAME(pthread_rwlock_unlock(lock), 0);
        join_in_time(writer);
    }
    SAY(pthread_rwlock_trywrlock(lock));
    SAY(pthread_rwlock_unlock(lock));
}

/* ---- many threads, of which each might be the first ---- */

static pthread_rwlock_t raced = PTHREAD_RWLOCK_INITIALIZER;
static pthread_barrier_t together;
static volatile long first, second;
static int each;

static void *use(void *number)
{
    pthread_barrier_wait(&together);
    for (long i = 0; i < each; i++) {
        if ((i + (intptr_t)number) % 5 == 0) {
            SAME(pthread_rwlock_wrlock(&raced), 0);
            first++;
            if (i % 50 == 0)
                doze();
            second++;
        } else {
            SAME(pthread_rwlock_rdlock(&raced), 0);
            SAME(first, second);
            if (i % 7 == 0) {
                SAME(pthread_rwlock_rdlock(&raced), 0);
                SAME(pthread_rwlock_unlock(&raced), 0);
            }
        }
        SAME(pthread_rwlock_unlock(&raced), 0);
    }
    return NULL;
}

static void race(void)
{
    pthread_t threads[6];
    each = rounds(2000, 100000);
    SAME(pthread_barrier_init(&together, NULL, 6), 0);
    for (intptr_t i = 0; i < 6; i++)
        threads[i] = start(use, (void *)i);
    for (int i = 0; i < 6; i++)
        join(threads[i]);
    SAY(first == second && first == 6L * each / 5);
}

/* ---- cancelled threads ---- */

static void *read_when_free(void *lock)
{
    SAME(pthread_rwlock_rdlock(lock), 0);
    SAME(pthread_rwlock_unlock(lock), 0);
    pthread_testcancel();
    return NULL;
}

static void *write_when_free(void *lock)
{
    SAME(pthread_rwlock_wrlock(lock), 0);
    SAME(pthread_rwlock_unlock(lock), 0);
    pthread_testcancel();
    return NULL;
}

/* Waiting is not a cancellation point: the threads get the lock, and end afterwards. */
static void cancel_while_they_wait(pthread_rwlock_t *lock)
{
    SAME(pthread_rwlock_wrlock(lock), 0);
    pthread_t threads[] = { start(read_when_free, lock), start(write_when_free, lock) };
    rest(20);
    for (int i = 0; i < 2; i++)
        SAME(pthread_cancel(threads[i]), 0);
    rest(20);
    for (int i = 0; i < 2; i++)
        SAME(pthread_tryjoin_np(threads[i], NULL), EBUSY);
    SAME(pthread_rwlock_unlock(lock), 0);
    for (int i = 0; i < 2; i++)
        SAY(join_in_time(threads[i]) == PTHREAD_CANCELED);
    SAY(pthread_rwlock_trywrlock(lock));
    SAY(pthread_rwlock_unlock(lock));
}

/* ---- processes ---- */

static void in_two_processes(void)
{
    pthread_rwlock_t *lock = of_kind(PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_PROCESS_SHARED);
    long *count = in_memory_of_both(sizeof(*count));
    pid_t child = fork();
    for (int i = 0; i < 20000; i++) {
        SAME(pthread_rwlock_wrlock(lock), 0);
        *count += 1;
        SAME(pthread_rwlock_unlock(lock), 0);
    }
    if (child == 0)
        _exit(0);
    SAY(ended_well(child));
    SAY(*count);
    SAY(pthread_rwlock_destroy(lock));
}

/* ---- what only ours do ---- */

static volatile int over;

static void *read_on_and_on(void *lock)
{
    while (!over) {
        SAME(pthread_rwlock_rdlock(lock), 0);
        for (volatile int i = 0; i < 2000; i++)
            ;
        SAME(pthread_rwlock_unlock(lock), 0);
    }
    return NULL;
}

/* With the C library, readers keep writers out as long as there is always one. */
static void no_writer_starves(pthread_rwlock_t *lock)
{
    pthread_t readers[4];
    over = 0;
    for (int i = 0; i < 4; i++)
        readers[i] = start(read_on_and_on, lock);
    for (int i = 0; i < 100; i++) {
        struct timespec late = after(CLOCK_REALTIME, 10000);
        SAME(pthread_rwlock_timedwrlock(lock, &late), 0);
        SAME(pthread_rwlock_unlock(lock), 0);
    }
    over = 1;
    for (int i = 0; i < 4; i++)
        join(readers[i]);
}

static void *wait_asynchronously(void *lock)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    SAME(pthread_rwlock_wrlock(lock), 0);
    return NULL;
}

/* A thread that ends while it waits leaves nothing behind for which others wait. */
static void ends_while_it_waits(pthread_rwlock_t *lock)
{
    SAME(pthread_rwlock_rdlock(lock), 0);
    pthread_t waits = start(wait_asynchronously, lock);
    rest(20);
    SAME(pthread_cancel(waits), 0);
    SAME(join_in_time(waits) == PTHREAD_CANCELED, 1);
    SAME(pthread_rwlock_unlock(lock), 0);
    write_once(lock);
    read_once(lock);
}

/* The child has what the forking thread had; the threads that waited are not there. */
static void in_a_child(pthread_rwlock_t *lock, int (*take)(pthread_rwlock_t *))
{
    SAME(take(lock), 0);
    pthread_t threads[] = { start(read_once, lock), start(write_once, lock), start(write_once, lock) };
    rest(20);
    pid_t child = fork();
    if (child == 0) {
        alarm(20);
        SAME(pthread_rwlock_trywrlock(lock), EBUSY);
        SAME(pthread_rwlock_unlock(lock), 0);
        join(start(write_once, lock));
        join(start(read_once, lock));
        write_once(lock);
        SAME(pthread_rwlock_destroy(lock), 0);
        _exit(0);
    }
    SAME(ended_well(child), 1);
    SAME(pthread_rwlock_unlock(lock), 0);
    for (int i = 0; i < 3; i++)
        join_in_time(threads[i]);
}

int main(int count, char **arguments)
{
    (void)arguments;
    if (count > 1) {
        pthread_rwlock_t *locks[] = { &usual, &writers_first };
        for (int i = 0; i < 2; i++) {
            no_writer_starves(locks[i]);
            ends_while_it_waits(locks[i]);
            in_a_child(locks[i], pthread_rwlock_rdlock);
            in_a_child(locks[i], pthread_rwlock_wrlock);
            SAME(pthread_rwlock_unlock(locks[i]), EINVAL);
            printf("done\n");
        }
        return 0;
    }
    all_of("usual", &usual);
    all_of("writers first", &writers_first);
    all_of("readers first, made", of_kind(PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_PROCESS_PRIVATE));
    all_of("writers, made", of_kind(PTHREAD_RWLOCK_PREFER_WRITER_NP, PTHREAD_PROCESS_PRIVATE));
    all_of("writers first, made", of_kind(PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP, PTHREAD_PROCESS_PRIVATE));
    all_of("shared", of_kind(PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_PROCESS_SHARED));
    reads_again(of_kind(PTHREAD_RWLOCK_PREFER_READER_NP, PTHREAD_PROCESS_PRIVATE));
    reads_again(of_kind(PTHREAD_RWLOCK_PREFER_WRITER_NP, PTHREAD_PROCESS_PRIVATE));
    race();
    cancel_while_they_wait(&raced);
    in_two_processes();
    SAY(pthread_rwlock_destroy(&raced));
    return 0;
}
