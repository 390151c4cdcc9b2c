/* Threads whose stacks are as small as the system allows take mutexes of two kinds, wait for conditions until a deadline, notify, and are
   cancelled while they wait: none of that needs more of the stack than there is. */

#include "check.h"
#include <limits.h>

enum { THREADS = 8, ROUNDS = 300 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER, recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static long count, waiting;

static void *use_all(void *unused)
{
    for (int i = 0; i < ROUNDS; i++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        SAME(pthread_mutex_lock(&recursive), 0);
        SAME(pthread_mutex_lock(&recursive), 0);
        count++;
        SAME(pthread_mutex_unlock(&recursive), 0);
        SAME(pthread_mutex_unlock(&recursive), 0);
        if (i % 32 == 0) {
            struct timespec soon = after(CLOCK_REALTIME, 1);
            pthread_cond_timedwait(&condvar, &mutex, &soon);
        }
        if (i % 7 == 0)
            SAME(pthread_cond_signal(&condvar), 0);
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    return unused;
}

static void *wait_for_ever(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(release_mutex, &mutex);
    waiting++;
    for (;;)
        SAME(pthread_cond_wait(&never, &mutex), 0);
    pthread_cleanup_pop(1);
    return unused;
}

static void start_all(pthread_t *threads, void *(*main)(void *))
{
    pthread_attr_t smallest;
    SAME(pthread_attr_init(&smallest), 0);
    SAME(pthread_attr_setstacksize(&smallest, PTHREAD_STACK_MIN), 0);
    for (int i = 0; i < THREADS; i++)
        SAME(pthread_create(&threads[i], &smallest, main, NULL), 0);
}

int main(void)
{
    pthread_t threads[THREADS];
    alarm(250);
    start_all(threads, use_all);
    for (int i = 0; i < THREADS; i++)
        SAME(join_in_time(threads[i]), NULL);
    SAY(count);
    start_all(threads, wait_for_ever);
    for (long now = 0; now != THREADS; doze()) {
        SAME(pthread_mutex_lock(&mutex), 0);
        now = waiting;
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    for (int i = 0; i < THREADS; i++) {
        SAME(pthread_cancel(threads[i]), 0);
        SAME(join_in_time(threads[i]) == PTHREAD_CANCELED, 1);
    }
    SAY(waiting);
    return 0;
}
