/* Threads of the asynchronous cancellation type that are cancelled while they release a mutex or notify: by the threads that they wake, as
 * soon as these run. And at any moment, whatever they do with a mutex. With an argument, also while they notify and while they fork: the
 * condition variables and the fork of the C library may not be usable after that. */

#include "check.h"

static pthread_mutex_t mutex, never;
static pthread_cond_t condvar;
static int conditions, said;

/* A thread, and the argument of its clean-up handler. */
struct one {
    void (*work)(struct one *);
    int number, kind, cleaned;
};

static void clean(void *argument)
{
    struct one *one = argument;
    one->cleaned += one->number;
}

static void *asynchronous(void *argument)
{
    struct one *one = argument;
    pthread_cleanup_push(clean, argument);
    one->work(one);
    pthread_cleanup_pop(0);
    return NULL;
}

static void be_asynchronous(void)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
}

static void say(int number)
{
    __atomic_store_n(&said, number, __ATOMIC_SEQ_CST);
}

static void until(int number)
{
    while (__atomic_load_n(&said, __ATOMIC_SEQ_CST) != number)
        sched_yield();
}

/* Sometimes the other thread has fallen asleep by then, sometimes it is about to. */
static void pause_for(int number)
{
    if (number % 4)
        doze();
    else
        for (volatile int i = 0; i < number; i++)
            ;
}

static void make(int kind)
{
    SAME(pthread_mutex_init(&mutex, type(kind)), 0);
    SAME(pthread_mutex_init(&never, NULL), 0);
    SAME(pthread_mutex_lock(&never), 0);
    SAME(pthread_cond_init(&condvar, NULL), 0);
    say(0);
}

static void ends(pthread_t thread, struct one *one)
{
    SAME(pthread_cancel(thread), 0);
    SAME(join_in_time(thread) == PTHREAD_CANCELED, 1);
    SAME(one->cleaned, one->number);
}

/* ---- releasing a mutex ---- */

static void give_back(struct one *one)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    if (one->kind == PTHREAD_MUTEX_RECURSIVE)
        SAME(pthread_mutex_lock(&mutex), 0);
    say(1);
    until(2);
    be_asynchronous();
    pause_for(one->number);
    if (one->kind == PTHREAD_MUTEX_RECURSIVE)
        SAME(pthread_mutex_unlock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    pthread_mutex_lock(&never);
}

/* Two threads wait for it: the first that gets it cancels the thread. */
static int has_cancelled;
static pthread_t giving;

static void *take(void *argument)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    if (!has_cancelled++)
        ends(giving, argument);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return NULL;
}

static void given_back(const char *name, int kind)
{
    int went = 0;
    printf("-- %s\n", name);
    for (int round = 1, all = rounds(1000, 20000); round <= all; round++) {
        struct one one = { give_back, round, kind, 0 };
        make(kind);
        has_cancelled = 0;
        giving = start(asynchronous, &one);
        until(1);
        pthread_t other = 0;
        if (round % 2)
            other = start(take, &one);
        say(2);
        take(&one);
        if (round % 2)
            SAME(join_in_time(other), NULL);
        SAME(pthread_mutex_destroy(&mutex), 0);
        went++;
    }
    SAY(went);
}

/* ---- notifying ---- */

static void notify(struct one *one)
{
    int all = one->number % 2, held = one->number / 2 % 2;
    SAME(pthread_mutex_lock(&mutex), 0);
    say(2);
    if (!held)
        SAME(pthread_mutex_unlock(&mutex), 0);
    be_asynchronous();
    pause_for(one->number);
    SAME(all ? pthread_cond_broadcast(&condvar) : pthread_cond_signal(&condvar), 0);
    if (held)
        SAME(pthread_mutex_unlock(&mutex), 0);
    pthread_mutex_lock(&never);
}

static void *be_notified(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    while (said < 2)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void notified(void)
{
    int went = 0;
    printf("-- conditions\n");
    for (int round = 1, all = rounds(140, 1200); round <= all; round++) {
        struct one one = { notify, round, 0, 0 };
        make(PTHREAD_MUTEX_NORMAL);
        SAME(pthread_mutex_lock(&mutex), 0);
        pthread_t thread = start(asynchronous, &one), other = 0;
        if (round % 2)
            other = start(be_notified, NULL);
        while (said < 2)
            SAME(pthread_cond_wait(&condvar, &mutex), 0);
        ends(thread, &one);
        SAME(pthread_mutex_unlock(&mutex), 0);
        if (round % 2)
            SAME(join_in_time(other), NULL);
        went++;
    }
    SAY(went);
}

/* ---- at any moment ---- */

static void use(struct one *one)
{
    struct timespec soon = after(CLOCK_REALTIME, 0);
    be_asynchronous();
    say(1);
    for (int i = one->number;; i++) {
        if (i % 3 == 0)
            pthread_mutex_lock(&mutex);
        else if (i % 3 == 1 ? pthread_mutex_trylock(&mutex) : pthread_mutex_timedlock(&mutex, &soon))
            continue;
        if (conditions)
            i % 2 ? pthread_cond_signal(&condvar) : pthread_cond_broadcast(&condvar);
        pthread_mutex_unlock(&mutex);
    }
}

/* The thread that is cancelled may hold the mutex: so no thread waits for that without end. */
static void *use_for_a_while(void *unused)
{
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    for (int i = 0; i < 60; i++) {
        struct timespec soon = after(CLOCK_REALTIME, 0);
        soon.tv_nsec += soon.tv_nsec < 999900000 ? 50000 : 0;
        if (conditions && i % 2) {
            SAME(pthread_mutex_lock(&own), 0);
            pthread_cond_timedwait(&condvar, &own, &soon);
            SAME(pthread_mutex_unlock(&own), 0);
        } else if (pthread_mutex_timedlock(&mutex, &soon) == 0) {
            SAME(pthread_mutex_unlock(&mutex), 0);
        }
    }
    return unused;
}

static void at_any_moment(int kind)
{
    int went = 0;
    for (int round = 1, all = rounds(60, 500); round <= all; round++) {
        struct one one = { use, round, kind, 0 };
        make(kind);
        pthread_t others[2], thread = start(asynchronous, &one);
        for (int i = 0; i < 2; i++)
            others[i] = start(use_for_a_while, NULL);
        until(1);
        for (int i = 0; i < round % 3; i++)
            doze();
        ends(thread, &one);
        for (int i = 0; i < 2; i++)
            SAME(join_in_time(others[i]), NULL);
        went++;
    }
    SAY(went);
}

/* While we handle the fork, it is not cancelled in the middle of it. */
static void fork_and_fork(struct one *one)
{
    (void)one;
    be_asynchronous();
    say(1);
    for (;;) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        waitpid(child, NULL, 0);
    }
}

static void while_it_forks(void)
{
    int went = 0;
    /* A child that is cancelled too exits. */
    fflush(stdout);
    for (int round = 1, all = rounds(60, 500); round <= all; round++) {
        struct one one = { fork_and_fork, round, 0, 0 };
        make(PTHREAD_MUTEX_NORMAL);
        pthread_t thread = start(asynchronous, &one);
        until(1);
        for (volatile int i = 0; i < round * 997 % 200000; i++)
            ;
        ends(thread, &one);
        went++;
    }
    SAY(went);
}

int main(int count, char **arguments)
{
    (void)arguments;
    alarm(250);
    conditions = count > 1;
    if (conditions) {
        at_any_moment(PTHREAD_MUTEX_NORMAL);
        while_it_forks();
        /* The registration for forks has a lock in the C library, which `exit` takes and a cancelled thread may have kept. */
        fflush(stdout);
        _exit(0);
    }
    given_back("normal", PTHREAD_MUTEX_NORMAL);
    given_back("error-checking", PTHREAD_MUTEX_ERRORCHECK);
    given_back("recursive", PTHREAD_MUTEX_RECURSIVE);
    notified();
    at_any_moment(PTHREAD_MUTEX_NORMAL);
    at_any_moment(PTHREAD_MUTEX_RECURSIVE);
    return 0;
}
