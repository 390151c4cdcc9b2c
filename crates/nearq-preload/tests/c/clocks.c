/* The clock on which a thread with a deadline sleeps, and until when, according to the kernel. The machine's clock cannot be set for a
   test. So the call shows that a deadline moves with its clock: an absolute time on the clock that the program named. "unknown" if the
   kernel does not report it. */

#include "check.h"
#include <sys/syscall.h>

/* Each way to wait with a deadline: its function and its clock. */
enum { TIMEDLOCK, CLOCKLOCK_REAL, CLOCKLOCK_MONOTONIC, MTX,
       TIMEDWAIT_REAL, TIMEDWAIT_MONOTONIC, CLOCKWAIT_REAL, CLOCKWAIT_MONOTONIC, CND, WAYS };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t by_real_time = PTHREAD_COND_INITIALIZER, by_monotonic;
static mtx_t mutex11;
static cnd_t condvar11;

struct sleeper {
    int way;
    clockid_t clock;
    struct timespec until;
    pthread_t thread;
    volatile pid_t number;
    volatile int outcome;
};

static clockid_t clock_of(int way)
{
    int monotonic = way == CLOCKLOCK_MONOTONIC || way == TIMEDWAIT_MONOTONIC || way == CLOCKWAIT_MONOTONIC;
    return monotonic ? CLOCK_MONOTONIC : CLOCK_REALTIME;
}

/* Whether it waits for a held mutex, and not for a condition. */
static int wants_mutex(int way)
{
    return way <= MTX;
}

static int wait_by(struct sleeper *own)
{
    switch (own->way) {
    case TIMEDLOCK:
        return pthread_mutex_timedlock(&mutex, &own->until);
    case CLOCKLOCK_REAL:
    case CLOCKLOCK_MONOTONIC:
        return pthread_mutex_clocklock(&mutex, own->clock, &own->until);
    case MTX:
        return mtx_timedlock(&mutex11, &own->until);
    case TIMEDWAIT_REAL:
        return pthread_cond_timedwait(&by_real_time, &mutex, &own->until);
    case TIMEDWAIT_MONOTONIC:
        return pthread_cond_timedwait(&by_monotonic, &mutex, &own->until);
    case CLOCKWAIT_REAL:
        return pthread_cond_clockwait(&by_monotonic, &mutex, own->clock, &own->until);
    case CLOCKWAIT_MONOTONIC:
        return pthread_cond_clockwait(&by_real_time, &mutex, own->clock, &own->until);
    default:
        return cnd_timedwait(&condvar11, &mutex11, &own->until);
    }
}

static void lock(int way)
{
    if (way == MTX || way == CND)
        SAME(mtx_lock(&mutex11), thrd_success);
    else
        SAME(pthread_mutex_lock(&mutex), 0);
}

static void unlock(int way)
{
    if (way == MTX || way == CND)
        SAME(mtx_unlock(&mutex11), thrd_success);
    else
        SAME(pthread_mutex_unlock(&mutex), 0);
}

static void *sleep_by(void *argument)
{
    struct sleeper *own = argument;
    if (!wants_mutex(own->way))
        lock(own->way);
    own->number = gettid();
    own->outcome = wait_by(own);
    unlock(own->way);
    return NULL;
}

/* The system call that the thread is in. False if the kernel does not report it. */
static int call_of(const struct sleeper *of, char *line, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/task/%d/syscall", (int)of->number);
    FILE *file = fopen(path, "r");
    int known = file && fgets(line, (int)size, file);
    if (file)
        fclose(file);
    return known;
}

/* Waits until the thread sleeps until its deadline, on its clock. 1 if that happens in time, -1 if the kernel does not report it. */
static int sleeps_on_its_clock(const struct sleeper *of)
{
    enum { BITSET = 9, OPERATION = 127, BY_REAL_TIME = 256 };
    struct timespec late = after(CLOCK_MONOTONIC, 20000);
    char line[200] = "", again[200];
    for (; !has_come(CLOCK_MONOTONIC, late); doze()) {
        unsigned long argument[4];
        long number = -1;
        if (!call_of(of, line, sizeof line))
            return -1;
        if (sscanf(line, "%ld %lx %lx %lx %lx", &number, &argument[0], &argument[1], &argument[2], &argument[3]) != 5
            || number != SYS_futex || argument[3] == 0 || (argument[1] & OPERATION) != BITSET)
            continue;
        /* On the stack of a thread that cannot end before the caller lets it. */
        struct timespec until = *(volatile struct timespec *)argument[3];
        int real = (argument[1] & BY_REAL_TIME) != 0;
        if (call_of(of, again, sizeof again) && strcmp(line, again) == 0 && real == (of->clock == CLOCK_REALTIME)
            && until.tv_sec == of->until.tv_sec && until.tv_nsec == of->until.tv_nsec)
            return 1;
    }
    fprintf(stderr, "way %d: %s\n", of->way, line);
    return 0;
}

/* Two threads that wait in the same way, one after the other: threads that wait for a mutex sleep at different places. */
static int both_sleep(int way)
{
    static struct sleeper sleepers[2];
    int known = 1;
    lock(way);
    for (int i = 0; i < 2; i++) {
        clockid_t clock = clock_of(way);
        sleepers[i] = (struct sleeper){ .way = way, .clock = clock, .until = after(clock, 900000 + i * 1234), .outcome = -1 };
        sleepers[i].thread = start(sleep_by, &sleepers[i]);
        if (!wants_mutex(way))
            unlock(way);
        while (!sleepers[i].number)
            sched_yield();
        if (!wants_mutex(way))
            lock(way); /* It gives the mutex back when it waits. */
        known = sleeps_on_its_clock(&sleepers[i]);
        if (known != 1)
            break;
    }
    if (known == 0)
        _exit(1);
    pthread_cond_broadcast(&by_real_time);
    pthread_cond_broadcast(&by_monotonic);
    cnd_broadcast(&condvar11);
    unlock(way);
    for (int i = 0; i < 2 && sleepers[i].number; i++) {
        SAME(join_in_time(sleepers[i].thread), NULL);
        SAME(sleepers[i].outcome, 0);
        sleepers[i].number = 0;
    }
    return known;
}

int main(void)
{
    pthread_condattr_t attributes;
    SAME(pthread_condattr_init(&attributes), 0);
    SAME(pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC), 0);
    SAME(pthread_cond_init(&by_monotonic, &attributes), 0);
    SAME(mtx_init(&mutex11, mtx_timed), thrd_success);
    SAME(cnd_init(&condvar11), thrd_success);
    for (int way = 0; way < WAYS; way++)
        if (both_sleep(way) == 1)
            printf("way %d sleeps on its clock\n", way);
        else
            printf("way %d: unknown\n", way);
    return 0;
}
