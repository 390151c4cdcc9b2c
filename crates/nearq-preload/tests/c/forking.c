/* Forks while other threads hold and wait for mutexes, which handlers of the program keep consistent. With an argument, a condition
   variable at which threads of the parent wait is used in the child as it is; the C library's may hang then. */

#include "check.h"

static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER, second;
static pthread_mutex_t third = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static long counts[2];
static int stop, sleepers, as_it_is;

static void prepare(void)
{
    SAME(pthread_mutex_lock(&first), 0);
    SAME(pthread_mutex_lock(&second), 0);
    SAME(pthread_mutex_lock(&third), 0);
}

static void give_back(void)
{
    SAME(pthread_mutex_unlock(&second), 0);
    SAME(pthread_mutex_unlock(&first), 0);
}

static void parent(void)
{
    SAME(pthread_mutex_unlock(&third), 0);
    give_back();
}

/* The mutex that knows its holder is initialised again, as the C library's holder is a different one in the child. */
static void child(void)
{
    static const pthread_mutex_t new = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
    third = new;
    give_back();
    /* And taken, by the handlers of others. */
    SAME(pthread_mutex_lock(&first), 0);
    SAME(pthread_mutex_unlock(&first), 0);
}

/* Before any code of ours, as the constructor of a library would. */
__attribute__((constructor(101))) static void early(void)
{
    SAME(pthread_atfork(prepare, parent, child), 0);
    SAME(pthread_mutex_init(&second, NULL), 0);
    SAME(pthread_mutex_lock(&second), 0);
    SAME(pthread_mutex_unlock(&second), 0);
}

static void *fight(void *unused)
{
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        SAME(pthread_mutex_lock(&first), 0);
        counts[0]++;
        SAME(pthread_mutex_lock(&second), 0);
        counts[1]++;
        SAME(pthread_mutex_unlock(&second), 0);
        SAME(pthread_mutex_unlock(&first), 0);
        SAME(pthread_mutex_lock(&third), 0);
        SAME(pthread_mutex_lock(&third), 0);
        SAME(pthread_mutex_unlock(&third), 0);
        SAME(pthread_mutex_unlock(&third), 0);
    }
    return NULL;
}

static void *sleep_there(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&first), 0);
    sleepers++;
    while (!stop)
        SAME(pthread_cond_wait(&condvar, &first), 0);
    SAME(pthread_mutex_unlock(&first), 0);
    return NULL;
}

static void *count_a_little(void *unused)
{
    (void)unused;
    for (int i = 0; i < 500; i++) {
        SAME(pthread_mutex_lock(&first), 0);
        counts[0]++;
        if (i % 16 == 0)
            sched_yield();
        SAME(pthread_mutex_unlock(&first), 0);
    }
    return NULL;
}

static int notified;

static void *notify_child(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&first), 0);
    notified = 1;
    SAME(pthread_cond_signal(&condvar), 0);
    SAME(pthread_mutex_unlock(&first), 0);
    return NULL;
}

/* What a child does, and its own child too, if it has one. */
__attribute__((noreturn)) static void in_child(int depth);

static void with_child(int depth)
{
    pid_t grandchild = fork();
    if (grandchild == 0) {
        notified = 0;
        in_child(depth);
    }
    SAME(ended_well(grandchild), 1);
}

static void in_child(int depth)
{
    static const pthread_cond_t new = PTHREAD_COND_INITIALIZER;
    pthread_t threads[3];
    alarm(120);
    if (!as_it_is)
        condvar = new;
    SAME(counts[0] - counts[1] == 0, 1);
    long before = counts[0];
    for (int i = 0; i < 3; i++)
        threads[i] = start(count_a_little, NULL);
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    SAME(counts[0] - before, 1500);
    /* Threads that waited in the parent take none of the notifications here. */
    SAME(pthread_mutex_lock(&first), 0);
    pthread_t notifier = start(notify_child, NULL);
    while (!notified)
        SAME(pthread_cond_wait(&condvar, &first), 0);
    SAME(pthread_mutex_unlock(&first), 0);
    join(notifier);
    counts[1] = counts[0];
    if (depth > 0)
        with_child(depth - 1);
    SAME(pthread_cond_destroy(&condvar), 0);
    _exit(0);
}

/* ---- while another thread notifies at a condition variable for several processes, where it has waited with a mutex of its own ---- */

static pthread_cond_t shared;

static void wait_in_vain(void)
{
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    struct timespec past = { 1, 0 };
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_cond_timedwait(&shared, &mutex, &past), ETIMEDOUT);
    SAME(pthread_mutex_unlock(&mutex), 0);
}

static void *notify_often(void *unused)
{
    wait_in_vain();
    __atomic_store_n(&notified, 2, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED))
        SAME(pthread_cond_signal(&shared), 0);
    return unused;
}

static void at_a_shared_condition(void)
{
    int well = 0;
    pthread_condattr_t attributes;
    SAME(pthread_condattr_init(&attributes), 0);
    SAME(pthread_condattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED), 0);
    SAME(pthread_cond_init(&shared, &attributes), 0);
    __atomic_store_n(&stop, 0, __ATOMIC_RELAXED);
    pthread_t thread = start(notify_often, NULL);
    while (__atomic_load_n(&notified, __ATOMIC_SEQ_CST) != 2)
        doze();
    for (int round = 0; round < 12; round++) {
        doze();
        pid_t pid = fork();
        if (pid == 0) {
            alarm(20);
            SAME(pthread_cond_init(&shared, &attributes), 0);
            wait_in_vain();
            _exit(0);
        }
        well += ended_well(pid);
    }
    SAY(well);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    SAME(join_in_time(thread), NULL);
}

int main(int count, char **arguments)
{
    (void)arguments;
    as_it_is = count > 1;
    pthread_t threads[7];
    for (int i = 0; i < 4; i++)
        threads[i] = start(fight, NULL);
    for (int i = 4; i < 7; i++)
        threads[i] = start(sleep_there, NULL);
    for (int asleep = 0; asleep < 3; sched_yield()) {
        SAME(pthread_mutex_lock(&first), 0);
        asleep = sleepers;
        SAME(pthread_mutex_unlock(&first), 0);
    }
    int well = 0;
    int forks = rounds(6, 40);
    for (int round = 0; round < forks; round++) {
        pid_t pid = fork();
        if (pid == 0)
            in_child(round % 8 == 0);
        well += ended_well(pid);
    }
    SAY(well == forks);
    SAME(pthread_mutex_lock(&first), 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    SAME(pthread_cond_broadcast(&condvar), 0);
    SAME(pthread_mutex_unlock(&first), 0);
    for (int i = 0; i < 7; i++)
        join(threads[i]);
    SAY(counts[0] == counts[1]);
    at_a_shared_condition();
    return 0;
}
