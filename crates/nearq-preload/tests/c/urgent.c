/* Threads of real-time classes that wait for a condition: the most urgent is notified first, of one urgency the one that came first, and
 * ordinary ones last. A thread has the class from its beginning, or gets it after it has waited as an ordinary one.
 *
 * A thread that is cancelled while it waits, on the only CPU of the thread that cancels it, does not keep checking whether that thread has
 * made progress: it would prevent that progress. */

#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static int waiting, count, order[16];

enum way { FROM_THE_BEGINNING, BY_ITSELF, BY_NUMBER };

struct waiter {
    int index, priority;
    enum way way;
    pthread_t thread;
};

static int set_class(enum way way, int priority)
{
    struct sched_param wanted = { priority };
    int policy = priority ? SCHED_FIFO : SCHED_OTHER;
    if (way == BY_NUMBER)
        return sched_setscheduler(0, policy, &wanted) ? errno : 0;
    return pthread_setschedparam(pthread_self(), policy, &wanted);
}

static void *wait_in_order(void *argument)
{
    struct waiter *waiter = argument;
    SAME(pthread_mutex_lock(&mutex), 0);
    if (waiter->way != FROM_THE_BEGINNING) {
        pthread_cond_t nobodys = PTHREAD_COND_INITIALIZER;
        struct timespec soon = after(CLOCK_REALTIME, 1);
        SAME(pthread_cond_timedwait(&nobodys, &mutex, &soon), ETIMEDOUT);
        SAME(pthread_cond_destroy(&nobodys), 0);
        SAME(set_class(waiter->way, waiter->priority), 0);
    }
    waiting++;
    SAME(pthread_cond_wait(&condvar, &mutex), 0);
    order[count++] = waiter->index;
    SAME(pthread_mutex_unlock(&mutex), 0);
    return NULL;
}

static int now_of(int *value)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    int now = *value;
    SAME(pthread_mutex_unlock(&mutex), 0);
    return now;
}

static void notified(enum way way)
{
    static const int priorities[] = { 0, 10, 11, 0, 50, 11 };
    struct waiter waiters[6];
    waiting = count = 0;
    for (int i = 0; i < 6; i++) {
        struct sched_param wanted = { priorities[i] };
        pthread_attr_t attributes;
        waiters[i] = (struct waiter){ .index = i, .priority = priorities[i], .way = way };
        SAME(pthread_attr_init(&attributes), 0);
        if (way == FROM_THE_BEGINNING) {
            SAME(pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED), 0);
            SAME(pthread_attr_setschedpolicy(&attributes, priorities[i] ? SCHED_FIFO : SCHED_OTHER), 0);
            SAME(pthread_attr_setschedparam(&attributes, &wanted), 0);
        }
        SAME(pthread_create(&waiters[i].thread, &attributes, wait_in_order, &waiters[i]), 0);
        while (now_of(&waiting) == i)
            rest(1);
    }
    for (int i = 0; i < 6; i++) {
        SAME(pthread_cond_signal(&condvar), 0);
        while (now_of(&count) == i)
            rest(1);
    }
    for (int i = 0; i < 6; i++) {
        SAME(join_in_time(waiters[i].thread), NULL);
        SAY(order[i]);
    }
}

static int is_up;

static void let_go(void *held)
{
    SAME(pthread_mutex_unlock(held), 0);
}

static void *wait_until_cancelled(void *nothing)
{
    struct sched_param wanted = { 20 };
    SAME(pthread_setschedparam(pthread_self(), SCHED_FIFO, &wanted), 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(let_go, &mutex);
    is_up = 1;
    for (;;)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    pthread_cleanup_pop(1);
    return nothing;
}

static double used_by_us(void)
{
    struct timespec used;
    SAME(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used), 0);
    return used.tv_sec + used.tv_nsec / 1e9;
}

static void cancelled_on_one_cpu(void)
{
    cpu_set_t all, one;
    SAME(sched_getaffinity(0, sizeof(all), &all), 0);
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && !CPU_COUNT(&one); cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    SAME(sched_setaffinity(0, sizeof(one), &one), 0);
    double before = used_by_us();
    for (int round = 0; round < 200; round++) {
        pthread_t thread;
        SAME(pthread_mutex_lock(&mutex), 0);
        is_up = 0;
        SAME(pthread_mutex_unlock(&mutex), 0);
        SAME(pthread_create(&thread, NULL, wait_until_cancelled, NULL), 0);
        while (!now_of(&is_up))
            rest(1);
        SAME(pthread_cancel(thread), 0);
        SAME(join_in_time(thread), PTHREAD_CANCELED);
    }
    /* A thread that kept checking would use its CPU until the system throttles its class: for 0.95 s. */
    SAY(used_by_us() - before < 0.9);
    SAME(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
    alarm(200);
    if (set_class(BY_NUMBER, 1) || set_class(BY_NUMBER, 0)) {
        puts("refused");
        return 0;
    }
    for (enum way way = FROM_THE_BEGINNING; way <= BY_NUMBER; way++)
        notified(way);
    cancelled_on_one_cpu();
    return 0;
}
