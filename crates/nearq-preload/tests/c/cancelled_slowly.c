/* A thread begins to wait while another one, which is about to cancel it, makes no progress. */

#include "check.h"

extern int is_cancelling;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static int cleaned;

static void clean(void *unused)
{
    (void)unused;
    cleaned++;
    SAME(pthread_mutex_unlock(&mutex), 0);
}

static void *wait_for_ever(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&is_cancelling, __ATOMIC_SEQ_CST))
        sched_yield();
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(clean, NULL);
    for (;;)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    pthread_cleanup_pop(0);
    return NULL;
}

static void *take_it(void *unused)
{
    (void)unused;
    rest(100);
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return NULL;
}

int main(void)
{
    pthread_t thread = start(wait_for_ever, NULL), other = start(take_it, NULL);
    SAY(pthread_cancel(thread));
    SAY(join_in_time(thread) == PTHREAD_CANCELED);
    SAY(cleaned);
    /* The mutex was available in the meantime. */
    SAY(join_in_time(other) == NULL);
    return 0;
}
