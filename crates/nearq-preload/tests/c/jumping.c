/* Threads that jump out of a wait from a signal handler. The threads that wait behind them get the mutex, and are notified. With an
 * argument, out of waits for conditions too. The C library does not support that: there, a thread that has left takes the place of others
 * at the condition. */

#include "check.h"

#include <setjmp.h>
#include <signal.h>

static pthread_mutex_t mutex, inner = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar;
static int ready, within, jumped, value;

static _Thread_local sigjmp_buf target;
static _Thread_local volatile sig_atomic_t handled;

/* How a thread waits, and what its handler does. */
enum wait { LOCK, TIMED, CONDITION, TIMED_CONDITION };
enum way { AT_ONCE, FROM_A_STACK_OF_ITS_OWN, AFTER_A_JUMP_WITHIN, OUT_OF_TWO_WAITS };

static _Thread_local enum way way;

static void jump_within(void)
{
    jmp_buf here;
    volatile int again = 0;
    if (setjmp(here) == 0)
        longjmp(here, 1);
    else
        again = 1;
    SAME(again, 1);
}

static void on_signal(int number)
{
    (void)number;
    if (way == OUT_OF_TWO_WAITS && handled++ == 0) {
        /* Until the next signal, which would be handled first if it came at once. */
        __atomic_add_fetch(&within, 1, __ATOMIC_SEQ_CST);
        SAME(pthread_mutex_lock(&inner), 0);
        abort();
    }
    if (way == AFTER_A_JUMP_WITHIN)
        jump_within();
    siglongjmp(target, 1);
}

static void on_harmless_signal(int number)
{
    (void)number;
    jump_within();
    handled = 1;
}

struct job {
    enum wait wait;
    enum way way;
};

static void wait_by(enum wait wait)
{
    struct timespec late = after(CLOCK_REALTIME, 600000);
    if (wait == LOCK || wait == TIMED) {
        __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
        SAME(wait == LOCK ? pthread_mutex_lock(&mutex) : pthread_mutex_timedlock(&mutex, &late), 0);
        abort();
    }
    SAME(pthread_mutex_lock(&mutex), 0);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;)
        SAME(wait == CONDITION ? pthread_cond_wait(&condvar, &mutex) : pthread_cond_timedwait(&condvar, &mutex, &late), 0);
}

static void *jump(void *argument)
{
    struct job *job = argument;
    static _Thread_local char memory[65536];
    stack_t stack = { .ss_sp = memory, .ss_size = sizeof memory };
    way = job->way;
    if (way == FROM_A_STACK_OF_ITS_OWN)
        SAME(sigaltstack(&stack, NULL), 0);
    if (sigsetjmp(target, 1) == 0)
        wait_by(job->wait);
    __atomic_add_fetch(&jumped, 1, __ATOMIC_SEQ_CST);
    /* As before the wait. */
    int state = -1, kind = -1;
    SAME(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state), 0);
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_DEFERRED, &kind), 0);
    SAME(kind, PTHREAD_CANCEL_DEFERRED);
    SAME(state, PTHREAD_CANCEL_ENABLE);
    /* It waits for others, like any thread. */
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return NULL;
}

static void *use(void *unused)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < 200; i++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        if (i % 8 == 0)
            sched_yield();
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    return unused;
}

static void until(int *count, int wanted)
{
    while (__atomic_load_n(count, __ATOMIC_SEQ_CST) != wanted)
        rest(1);
}

static void send(pthread_t *threads, int count, int number)
{
    for (int i = 0; i < count; i++)
        SAME(pthread_kill(threads[i], number), 0);
}

/* Signals, and waits until all have jumped. A thread that does not wait yet jumps as well. */
static void have_them_jump(pthread_t *threads, int count, enum way how)
{
    rest(30);
    within = 0;
    send(threads, count, SIGUSR1);
    if (how == OUT_OF_TWO_WAITS) {
        until(&within, count);
        rest(30);
        SAME(__atomic_load_n(&jumped, __ATOMIC_SEQ_CST), 0);
        send(threads, count, SIGUSR2);
    }
    until(&jumped, count);
}

static void out_of_a_mutex(int kind, enum wait wait, enum way how)
{
    struct job job = { wait, how };
    pthread_t jumping[3], behind[2];
    SAME(pthread_mutex_init(&mutex, type(kind)), 0);
    ready = jumped = 0;
    SAME(pthread_mutex_lock(&mutex), 0);
    for (int i = 0; i < 3; i++)
        jumping[i] = start(jump, &job);
    until(&ready, 3);
    rest(10);
    for (int i = 0; i < 2; i++)
        behind[i] = start(use, NULL);
    until(&ready, 5);
    have_them_jump(jumping, 3, how);
    SAME(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < 2; i++)
        SAME(join_in_time(behind[i]), NULL);
    for (int i = 0; i < 3; i++)
        SAME(join_in_time(jumping[i]), NULL);
    SAME(pthread_mutex_destroy(&mutex), 0);
    SAY(jumped);
}

static void *take(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    while (value == 0)
        SAME(pthread_cond_wait(&condvar, &mutex), 0);
    value--;
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void out_of_a_condition(enum wait wait, enum way how, int all)
{
    struct job job = { wait, how };
    pthread_t jumping[3], behind[3];
    SAME(pthread_mutex_init(&mutex, NULL), 0);
    SAME(pthread_cond_init(&condvar, NULL), 0);
    ready = jumped = value = 0;
    for (int i = 0; i < 3; i++)
        jumping[i] = start(jump, &job);
    until(&ready, 3);
    for (int i = 0; i < 3; i++)
        behind[i] = start(take, NULL);
    until(&ready, 6);
    have_them_jump(jumping, 3, how);
    for (int i = 0; i < 3; i++)
        SAME(join_in_time(jumping[i]), NULL);
    /* One for each thread that still waits. */
    for (int i = 0; i < 3; i++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        value += all ? 3 : 1;
        SAME(all ? pthread_cond_broadcast(&condvar) : pthread_cond_signal(&condvar), 0);
        SAME(pthread_mutex_unlock(&mutex), 0);
        if (all)
            break;
    }
    for (int i = 0; i < 3; i++)
        SAME(join_in_time(behind[i]), NULL);
    SAME(pthread_cond_destroy(&condvar), 0);
    SAY(jumped);
}

static void *jump_out_of_a_condition(void *unused)
{
    int state = -1;
    if (sigsetjmp(target, 1) == 0)
        wait_by(CONDITION);
    __atomic_add_fetch(&jumped, 1, __ATOMIC_SEQ_CST);
    SAME(pthread_setcancelstate(PTHREAD_CANCEL_ENABLE, &state), 0);
    SAME(state, PTHREAD_CANCEL_ENABLE);
    return unused;
}

/* It stays the C library's, where a thread that has left still counts: no thread uses it afterwards. */
static void out_of_a_shared_condition(void)
{
    static pthread_condattr_t shared;
    SAME(pthread_condattr_init(&shared), 0);
    SAME(pthread_condattr_setpshared(&shared, PTHREAD_PROCESS_SHARED), 0);
    SAME(pthread_mutex_init(&mutex, NULL), 0);
    SAME(pthread_cond_init(&condvar, &shared), 0);
    ready = jumped = 0;
    pthread_t thread = start(jump_out_of_a_condition, NULL);
    until(&ready, 1);
    have_them_jump(&thread, 1, AT_ONCE);
    SAME(join_in_time(thread), NULL);
    SAY(jumped == 1);
}

/* A handler that jumps within itself does not end a wait. */
static void *wait_on(void *unused)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(handled, 1);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void jumps_within_a_handler(void)
{
    SAME(pthread_mutex_init(&mutex, NULL), 0);
    ready = 0;
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_t waiting = start(wait_on, NULL), behind = start(use, NULL);
    until(&ready, 2);
    rest(20);
    SAME(pthread_kill(waiting, SIGURG), 0);
    rest(20);
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(join_in_time(waiting) == NULL);
    SAY(join_in_time(behind) == NULL);
}

/* Of the asynchronous type: after a wait for a mutex it still is. */
static void *jump_and_be_cancelled(void *unused)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    if (sigsetjmp(target, 1) == 0)
        wait_by(LOCK);
    __atomic_add_fetch(&jumped, 1, __ATOMIC_SEQ_CST);
    for (volatile int i = 0;; i++)
        ;
    return unused;
}

/* Cancelled in the handler, before it jumps: after a wait for a condition, it ends at a cancellation point at the latest. */
static void on_cancelling_signal(int number)
{
    (void)number;
    SAME(pthread_cancel(pthread_self()), 0);
    siglongjmp(target, 1);
}

static void *be_cancelled_and_jump(void *unused)
{
    SAME(pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, NULL), 0);
    if (sigsetjmp(target, 1) == 0)
        wait_by(CONDITION);
    for (;;)
        pthread_testcancel();
    return unused;
}

static void of_the_asynchronous_type(void)
{
    SAME(pthread_mutex_init(&mutex, NULL), 0);
    SAME(pthread_cond_init(&condvar, NULL), 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    ready = jumped = 0;
    pthread_t thread = start(jump_and_be_cancelled, NULL);
    until(&ready, 1);
    have_them_jump(&thread, 1, AT_ONCE);
    SAY(pthread_cancel(thread));
    SAY(join_in_time(thread) == PTHREAD_CANCELED);
    SAME(pthread_mutex_unlock(&mutex), 0);
    ready = 0;
    thread = start(be_cancelled_and_jump, NULL);
    until(&ready, 1);
    rest(30);
    SAME(pthread_kill(thread, SIGPROF), 0);
    SAY(join_in_time(thread) == PTHREAD_CANCELED);
}

int main(int count, char **arguments)
{
    (void)arguments;
    alarm(250);
    struct sigaction jumps = { .sa_handler = on_signal, .sa_flags = SA_ONSTACK };
    struct sigaction harmless = { .sa_handler = on_harmless_signal }, cancels = { .sa_handler = on_cancelling_signal };
    SAME(sigaction(SIGUSR1, &jumps, NULL), 0);
    SAME(sigaction(SIGUSR2, &jumps, NULL), 0);
    SAME(sigaction(SIGURG, &harmless, NULL), 0);
    SAME(sigaction(SIGPROF, &cancels, NULL), 0);
    SAME(pthread_mutex_lock(&inner), 0);
    for (enum way how = AT_ONCE; how <= OUT_OF_TWO_WAITS; how++) {
        out_of_a_mutex(PTHREAD_MUTEX_NORMAL, LOCK, how);
        out_of_a_mutex(PTHREAD_MUTEX_RECURSIVE, TIMED, how);
        if (count > 1)
            for (int all = 0; all < 2; all++) {
                out_of_a_condition(CONDITION, how, all);
                out_of_a_condition(TIMED_CONDITION, how, all);
            }
    }
    out_of_a_shared_condition();
    jumps_within_a_handler();
    of_the_asynchronous_type();
    return 0;
}
