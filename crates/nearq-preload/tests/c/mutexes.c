/* Each function of mutexes on each kind. What is printed must not depend on whose mutexes they are. */

#include "check.h"

static pthread_mutex_t *subject;
static int (*step)(pthread_mutex_t *);

static void *do_step(void *unused)
{
    (void)unused;
    return (void *)(intptr_t)step(subject);
}

/* What a function returns to another thread. */
static int elsewhere(int (*function)(pthread_mutex_t *), pthread_mutex_t *mutex)
{
    subject = mutex;
    step = function;
    return (int)(intptr_t)join(start(do_step, NULL));
}

static int timed_soon(pthread_mutex_t *mutex)
{
    struct timespec until = after(CLOCK_REALTIME, 30);
    int outcome = pthread_mutex_timedlock(mutex, &until);
    if (outcome == ETIMEDOUT)
        SAME(has_come(CLOCK_REALTIME, until), 1);
    return outcome;
}

static int monotonic_soon(pthread_mutex_t *mutex)
{
    struct timespec until = after(CLOCK_MONOTONIC, 30);
    int outcome = pthread_mutex_clocklock(mutex, CLOCK_MONOTONIC, &until);
    if (outcome == ETIMEDOUT)
        SAME(has_come(CLOCK_MONOTONIC, until), 1);
    return outcome;
}

static int real_soon(pthread_mutex_t *mutex)
{
    struct timespec until = after(CLOCK_REALTIME, 30);
    return pthread_mutex_clocklock(mutex, CLOCK_REALTIME, &until);
}

static int long_ago(pthread_mutex_t *mutex)
{
    struct timespec until = { 1, 0 };
    return pthread_mutex_timedlock(mutex, &until);
}

static int before_all(pthread_mutex_t *mutex)
{
    struct timespec until = { -1, 0 };
    return pthread_mutex_timedlock(mutex, &until);
}

static int no_time(pthread_mutex_t *mutex)
{
    struct timespec until = { 1, 1000000000 };
    return pthread_mutex_timedlock(mutex, &until);
}

static int less_than_no_time(pthread_mutex_t *mutex)
{
    struct timespec until = { 1, -1 };
    return pthread_mutex_timedlock(mutex, &until);
}

static int by_no_clock(pthread_mutex_t *mutex)
{
    struct timespec until = after(CLOCK_MONOTONIC, 30);
    return pthread_mutex_clocklock(mutex, CLOCK_PROCESS_CPUTIME_ID, &until);
}

/* For a mutex that checks, everything that is defined; for one that does not, only what its holder may do. */
static void all_of(const char *name, pthread_mutex_t *mutex, int kind)
{
    int checks = kind == PTHREAD_MUTEX_ERRORCHECK || kind == PTHREAD_MUTEX_RECURSIVE;
    printf("-- %s\n", name);
    SAY(pthread_mutex_lock(mutex));
    SAY(pthread_mutex_trylock(mutex));
    if (kind == PTHREAD_MUTEX_RECURSIVE)
        SAY(pthread_mutex_unlock(mutex));
    if (checks) {
        SAY(pthread_mutex_lock(mutex));
        SAY(timed_soon(mutex));
        SAY(monotonic_soon(mutex));
        SAY(elsewhere(pthread_mutex_unlock, mutex));
    }
    if (kind == PTHREAD_MUTEX_RECURSIVE)
        for (int i = 0; i < 3; i++)
            SAY(pthread_mutex_unlock(mutex));
    SAY(elsewhere(pthread_mutex_trylock, mutex));
    SAY(elsewhere(timed_soon, mutex));
    SAY(elsewhere(monotonic_soon, mutex));
    SAY(elsewhere(real_soon, mutex));
    SAY(elsewhere(long_ago, mutex));
    SAY(elsewhere(before_all, mutex));
    SAY(elsewhere(no_time, mutex));
    SAY(elsewhere(less_than_no_time, mutex));
    SAY(elsewhere(by_no_clock, mutex));
    SAY(pthread_mutex_destroy(mutex));
    SAY(pthread_mutex_unlock(mutex));
    if (checks)
        SAY(pthread_mutex_unlock(mutex));
    /* A deadline does not matter for a free mutex. */
    SAY(long_ago(mutex));
    SAY(pthread_mutex_unlock(mutex));
    SAY(no_time(mutex));
    SAY(pthread_mutex_unlock(mutex));
    SAY(monotonic_soon(mutex));
    SAY(pthread_mutex_unlock(mutex));
    SAY(pthread_mutex_destroy(mutex));
    SAY(pthread_mutex_lock(mutex));
    SAY(pthread_mutex_destroy(mutex));
}

static pthread_mutex_t normal = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;

static void kinds(void)
{
    all_of("static normal", &normal, PTHREAD_MUTEX_NORMAL);
    all_of("static recursive", &recursive, PTHREAD_MUTEX_RECURSIVE);
    all_of("static error-checking", &checking, PTHREAD_MUTEX_ERRORCHECK);
    all_of("static adaptive", &adaptive, PTHREAD_MUTEX_ADAPTIVE_NP);
    int made[] = { PTHREAD_MUTEX_DEFAULT, PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_RECURSIVE, PTHREAD_MUTEX_ERRORCHECK,
                   PTHREAD_MUTEX_ADAPTIVE_NP };
    for (unsigned i = 0; i < sizeof made / sizeof *made; i++) {
        pthread_mutex_t mutex;
        memset(&mutex, 0xa5, sizeof mutex);
        SAY(pthread_mutex_init(&mutex, type(made[i])));
        all_of("made", &mutex, made[i]);
        SAY(pthread_mutex_init(&mutex, NULL));
        all_of("made anew, normal", &mutex, PTHREAD_MUTEX_NORMAL);
    }
}

static void *give_back_later(void *mutex)
{
    rest(30);
    return (void *)(intptr_t)pthread_mutex_unlock(mutex);
}

/* Any thread may unlock a mutex that does not check; a thread that holds it waits for that if it takes it again. */
static void given_back_elsewhere(int kind)
{
    pthread_mutex_t mutex;
    SAY(pthread_mutex_init(&mutex, type(kind)));
    SAY(pthread_mutex_lock(&mutex));
    SAY(elsewhere(pthread_mutex_unlock, &mutex));
    SAY(pthread_mutex_trylock(&mutex));
    SAY(timed_soon(&mutex));
    SAY(monotonic_soon(&mutex));
    pthread_t other = start(give_back_later, &mutex);
    SAY(pthread_mutex_lock(&mutex));
    SAY((intptr_t)join(other));
    SAY(pthread_mutex_unlock(&mutex));
}

static pthread_cond_t *condition;

static void *notify_later(void *mutex)
{
    rest(30);
    SAME(pthread_mutex_lock(mutex), 0);
    SAME(pthread_cond_signal(condition), 0);
    return (void *)(intptr_t)pthread_mutex_unlock(mutex);
}

/* A thread that waits for a condition with a mutex that another thread took unlocks it, and has it afterwards. */
static void waited_with_elsewhere(int kind)
{
    pthread_mutex_t mutex;
    pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
    SAY(pthread_mutex_init(&mutex, type(kind)));
    SAY(elsewhere(pthread_mutex_lock, &mutex));
    condition = &condvar;
    pthread_t other = start(notify_later, &mutex);
    SAY(pthread_cond_wait(&condvar, &mutex));
    SAY((intptr_t)join(other));
    SAY(elsewhere(pthread_mutex_trylock, &mutex));
    SAY(elsewhere(pthread_mutex_unlock, &mutex));
}

static int waits, go;

static void *wait_with(void *mutex)
{
    SAME(pthread_mutex_lock(mutex), 0);
    waits = 1;
    while (!go)
        SAME(pthread_cond_wait(condition, mutex), 0);
    return (void *)(intptr_t)pthread_mutex_unlock(mutex);
}

/* A mutex that no thread holds is busy while a thread waits for a condition with it. */
static void busy_while_waited_with(int kind)
{
    pthread_mutex_t mutex;
    pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
    SAY(pthread_mutex_init(&mutex, type(kind)));
    condition = &condvar;
    waits = go = 0;
    pthread_t other = start(wait_with, &mutex);
    for (int waiting = 0; !waiting; doze()) {
        SAME(pthread_mutex_lock(&mutex), 0);
        waiting = waits;
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    SAY(pthread_mutex_destroy(&mutex));
    SAY(pthread_mutex_lock(&mutex));
    SAY(pthread_mutex_destroy(&mutex));
    go = 1;
    SAY(pthread_cond_signal(&condvar));
    SAY(pthread_mutex_unlock(&mutex));
    SAY((intptr_t)join(other));
    SAY(pthread_mutex_destroy(&mutex));
}

/* ---- kinds that stay the C library's ---- */

static void *take_and_end(void *mutex)
{
    return (void *)(intptr_t)pthread_mutex_lock(mutex);
}

static void robust(void)
{
    pthread_mutexattr_t *attributes = type(PTHREAD_MUTEX_NORMAL);
    pthread_mutex_t mutex;
    SAY(pthread_mutexattr_setrobust(attributes, PTHREAD_MUTEX_ROBUST));
    SAY(pthread_mutex_init(&mutex, attributes));
    SAY((intptr_t)join(start(take_and_end, &mutex)));
    SAY(pthread_mutex_lock(&mutex));
    SAY(pthread_mutex_consistent(&mutex));
    SAY(pthread_mutex_unlock(&mutex));
    SAY((intptr_t)join(start(take_and_end, &mutex)));
    SAY(pthread_mutex_trylock(&mutex));
    SAY(pthread_mutex_unlock(&mutex));
    SAY(timed_soon(&mutex));
    SAY(pthread_mutex_destroy(&mutex));
}

static void inheriting(void)
{
    pthread_mutexattr_t *attributes = type(PTHREAD_MUTEX_ERRORCHECK);
    pthread_mutex_t mutex;
    SAY(pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_INHERIT));
    SAY(pthread_mutex_init(&mutex, attributes));
    all_of("inheriting", &mutex, PTHREAD_MUTEX_ERRORCHECK);
    SAY(pthread_mutexattr_setprotocol(attributes, PTHREAD_PRIO_PROTECT));
    SAY(pthread_mutex_init(&mutex, attributes));
    int ceiling = -1;
    SAY(pthread_mutex_getprioceiling(&mutex, &ceiling));
    SAY(ceiling);
    SAY(pthread_mutex_destroy(&mutex));
}

struct shared {
    pthread_mutex_t mutex;
    pthread_cond_t condvar;
    int turn;
    long count;
};

static struct shared *shared_between_processes(clockid_t clock)
{
    struct shared *both = in_memory_of_both(sizeof *both);
    pthread_mutexattr_t *attributes = type(PTHREAD_MUTEX_NORMAL);
    pthread_condattr_t of_condvar;
    SAME(pthread_mutexattr_setpshared(attributes, PTHREAD_PROCESS_SHARED), 0);
    SAME(pthread_mutex_init(&both->mutex, attributes), 0);
    SAME(pthread_condattr_init(&of_condvar), 0);
    SAME(pthread_condattr_setpshared(&of_condvar, PTHREAD_PROCESS_SHARED), 0);
    SAME(pthread_condattr_setclock(&of_condvar, clock), 0);
    SAME(pthread_cond_init(&both->condvar, &of_condvar), 0);
    return both;
}

static void count(struct shared *both)
{
    for (int i = 0; i < 20000; i++) {
        SAME(pthread_mutex_lock(&both->mutex), 0);
        both->count++;
        SAME(pthread_mutex_unlock(&both->mutex), 0);
    }
}

static void play(struct shared *both, int me)
{
    for (int i = 0; i < 2000; i++) {
        SAME(pthread_mutex_lock(&both->mutex), 0);
        while (both->turn != me)
            SAME(pthread_cond_wait(&both->condvar, &both->mutex), 0);
        both->turn = !me;
        SAME(pthread_cond_broadcast(&both->condvar), 0);
        SAME(pthread_mutex_unlock(&both->mutex), 0);
    }
}

static void shared(void)
{
    struct shared *both = shared_between_processes(CLOCK_REALTIME);
    pid_t child = fork();
    count(both);
    play(both, child == 0);
    if (child == 0)
        _exit(0);
    SAY(ended_well(child));
    SAY(both->count);
    struct timespec soon = after(CLOCK_REALTIME, 30);
    SAME(pthread_mutex_lock(&both->mutex), 0);
    SAY(pthread_cond_timedwait(&both->condvar, &both->mutex, &soon));
    SAY(has_come(CLOCK_REALTIME, soon));
    SAME(pthread_mutex_unlock(&both->mutex), 0);
    SAY(pthread_cond_destroy(&both->condvar));
    SAY(pthread_mutex_destroy(&both->mutex));
}

/* ---- C11 ---- */

static void c11(void)
{
    int kinds[] = { mtx_plain, mtx_timed, mtx_plain | mtx_recursive, mtx_timed | mtx_recursive };
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        mtx_t mutex;
        struct timespec soon = after(CLOCK_REALTIME, 30), no = { 1, -1 };
        SAY(mtx_init(&mutex, kinds[i]));
        SAY(mtx_lock(&mutex));
        SAY(mtx_trylock(&mutex));
        if (kinds[i] & mtx_recursive)
            SAY(mtx_unlock(&mutex));
        else {
            SAY(mtx_timedlock(&mutex, &soon));
            SAY(has_come(CLOCK_REALTIME, soon));
            SAY(mtx_timedlock(&mutex, &no));
        }
        SAY(mtx_unlock(&mutex));
        if (kinds[i] & mtx_recursive)
            SAY(mtx_unlock(&mutex));
        mtx_destroy(&mutex);
    }
    SAY(mtx_init((mtx_t[1]){ 0 }, 77));
}

/* A thread that finds the mutex free reads no time, which may be any address then. */
static void unread_times(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct timespec *volatile nowhere = (struct timespec *)8;
    SAY(pthread_mutex_timedlock(&mutex, nowhere));
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(pthread_mutex_clocklock(&mutex, CLOCK_MONOTONIC, nowhere));
    SAME(pthread_mutex_unlock(&mutex), 0);
}

int main(void)
{
    kinds();
    unread_times();
    int unchecked[] = { PTHREAD_MUTEX_NORMAL, PTHREAD_MUTEX_ADAPTIVE_NP };
    for (unsigned i = 0; i < sizeof unchecked / sizeof *unchecked; i++) {
        given_back_elsewhere(unchecked[i]);
        waited_with_elsewhere(unchecked[i]);
        busy_while_waited_with(unchecked[i]);
    }
    busy_while_waited_with(PTHREAD_MUTEX_RECURSIVE);
    busy_while_waited_with(PTHREAD_MUTEX_ERRORCHECK);
    robust();
    inheriting();
    shared();
    c11();
    return 0;
}
