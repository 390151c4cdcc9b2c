/* A condition variable with a mutex that stays the C library's: the thread that was notified frees the memory at once, while the notifying
 * thread, which is less urgent and does not hold the mutex, is still in its call. */

#include "check.h"

static pthread_mutex_t mutex;
static pthread_cond_t *condvar;
static int is_urgent;
/* Protected by the mutex: the thread is about to wait, and has begun to wait once the mutex can be taken. */
static int begun;

static void *wait_and_give_back(void *all)
{
    struct sched_param wanted = { 10 };
    is_urgent = pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted) == 0;
    SAME(pthread_mutex_lock(&mutex), 0);
    begun = 1;
    SAME(pthread_cond_wait(condvar, &mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAME(munmap(condvar, 4096), 0);
    return all;
}

int main(void)
{
    alarm(250);
    cpu_set_t one;
    CPU_ZERO(&one);
    SAME(sched_getaffinity(0, sizeof one, &one), 0);
    for (int cpu = 0, found = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &one) && found++)
            CPU_CLR(cpu, &one);
    SAME(sched_setaffinity(0, sizeof one, &one), 0);
    pthread_mutexattr_t inherits;
    SAME(pthread_mutexattr_init(&inherits), 0);
    SAME(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT), 0);
    SAME(pthread_mutex_init(&mutex, &inherits), 0);
    for (int i = 0; i < 40; i++) {
        condvar = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        SAME(condvar != MAP_FAILED, 1);
        SAME(pthread_cond_init(condvar, NULL), 0);
        pthread_t waits = start(wait_and_give_back, NULL);
        for (int waiting = 0; !waiting;) {
            rest(1);
            SAME(pthread_mutex_lock(&mutex), 0);
            waiting = begun;
            SAME(pthread_mutex_unlock(&mutex), 0);
        }
        begun = 0;
        SAME(i % 2 ? pthread_cond_signal(condvar) : pthread_cond_broadcast(condvar), 0);
        SAME(join_in_time(waits), NULL);
    }
    puts(is_urgent ? "urgent" : "refused");
    return 0;
}
