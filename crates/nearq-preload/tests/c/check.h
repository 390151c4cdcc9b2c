/* What the test programs share: checks that say where they failed, threads, times. */

#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

/* Both must be the same; ends the program otherwise. */
#define SAME(what, expected)                                                                              \
    do {                                                                                                  \
        long long found_ = (long long)(what), expected_ = (long long)(expected);                          \
        if (found_ != expected_) {                                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %lld\n", __FILE__, __LINE__, #what, found_, expected_); \
            _exit(1);                                                                                     \
        }                                                                                                 \
    } while (0)

/* Prints an outcome, to be compared between runs. */
#define SAY(what) printf("%s = %lld\n", #what, (long long)(what))

static inline pthread_t start(void *(*main)(void *), void *argument)
{
    pthread_t thread;
    SAME(pthread_create(&thread, NULL, main, argument), 0);
    return thread;
}

static inline void *join(pthread_t thread)
{
    void *result = NULL;
    SAME(pthread_join(thread, &result), 0);
    return result;
}

/* For pthread_cleanup_push: a thread that is cancelled in a wait has the mutex. */
static inline void release_mutex(void *mutex)
{
    SAME(pthread_mutex_unlock(mutex), 0);
}

static inline struct timespec now(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return time;
}

static inline struct timespec after(clockid_t clock, long millis)
{
    struct timespec time = now(clock);
    time.tv_sec += millis / 1000;
    time.tv_nsec += millis % 1000 * 1000000;
    if (time.tv_nsec >= 1000000000) {
        time.tv_sec++;
        time.tv_nsec -= 1000000000;
    }
    return time;
}

/* As join, for a thread that might never end. */
static inline void *join_in_time(pthread_t thread)
{
    void *result = NULL;
    struct timespec late = after(CLOCK_REALTIME, 20000);
    SAME(pthread_timedjoin_np(thread, &result, &late), 0);
    return result;
}

static inline int has_come(clockid_t clock, struct timespec time)
{
    struct timespec is = now(clock);
    return is.tv_sec > time.tv_sec || (is.tv_sec == time.tv_sec && is.tv_nsec >= time.tv_nsec);
}

static inline void rest(long millis)
{
    struct timespec time = { millis / 1000, millis % 1000 * 1000000 };
    while (nanosleep(&time, &time) != 0)
        ;
}

/* How many times something is tried: `usual`, or `longer` if the environment has the variable NEARQ_LONG. */
static inline int rounds(int usual, int longer)
{
    return getenv("NEARQ_LONG") ? longer : usual;
}

/* As short as the system can. */
static inline void doze(void)
{
    struct timespec time = { 0, 1 };
    nanosleep(&time, NULL);
}

/* Whether a child ended well. */
static inline int ended_well(pid_t child)
{
    int status = -1;
    SAME(waitpid(child, &status, 0), child);
    return status == 0;
}

static inline pthread_mutexattr_t *type(int kind)
{
    static _Thread_local pthread_mutexattr_t attributes;
    SAME(pthread_mutexattr_init(&attributes), 0);
    SAME(pthread_mutexattr_settype(&attributes, kind), 0);
    return &attributes;
}

static inline void *in_memory_of_both(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    SAME(memory != MAP_FAILED, 1);
    return memory;
}

#endif
