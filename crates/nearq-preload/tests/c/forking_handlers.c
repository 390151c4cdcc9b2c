/* Signal handlers that fork, in a program with one thread: in the middle of a fork, and of a wait for a condition, where the child
   continues the wait, creates a thread, and is notified by that thread. The signal comes when the thread sleeps, and in many runs at
   another moment each, so that it comes before, within and after each step that leads to the sleep. */

#include "check.h"

#include <signal.h>
#include <sys/time.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t condvar = PTHREAD_COND_INITIALIZER;
static volatile int forks, value;
/* How long the thread that notifies waits, in milliseconds. */
static int delay = 50;

static void every(long micros)
{
    struct itimerval times = { { 0, micros }, { 0, micros } };
    SAME(setitimer(ITIMER_REAL, &times, NULL), 0);
}

static void have_handled_by(void (*handler)(int))
{
    struct sigaction action = { .sa_handler = handler, .sa_flags = SA_RESTART };
    SAME(sigaction(SIGALRM, &action, NULL), 0);
}

static void fork_and_wait(int unused)
{
    (void)unused;
    int before = errno;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    SAME(child > 0 && ended_well(child), 1);
    forks++;
    errno = before;
}

static void within_a_fork(void)
{
    have_handled_by(fork_and_wait);
    every(2000);
    for (int i = 0; i < 200 || forks < 20; i++) {
        pid_t child = fork();
        if (child == 0)
            _exit(0);
        SAME(child > 0 && ended_well(child), 1);
    }
    every(0);
    SAY(forks >= 20);
}

static void *notify(void *unused)
{
    rest(delay);
    SAME(pthread_mutex_lock(&mutex), 0);
    value = 1;
    SAME(pthread_cond_signal(&condvar), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void fork_and_go_on(int unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        signal(SIGALRM, SIG_DFL);
        alarm(20);
        start(notify, NULL);
        return;
    }
    /* Ends by a signal if it is never notified. */
    _exit(ended_well(child) ? 0 : 1);
}

/* The signal comes that many microseconds after the thread begins. */
static void within_a_wait(int timed, int micros)
{
    struct timespec late = after(CLOCK_REALTIME, 600000);
    fflush(stdout);
    pid_t child = fork();
    if (child != 0) {
        SAME(ended_well(child), 1);
        return;
    }
    have_handled_by(fork_and_go_on);
    ualarm(micros, 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    while (value == 0)
        SAME(timed ? pthread_cond_timedwait(&condvar, &mutex, &late) : pthread_cond_wait(&condvar, &mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    _exit(0);
}

int main(void)
{
    within_a_fork();
    within_a_wait(0, 50000);
    within_a_wait(1, 50000);
    delay = 2;
    for (int i = 0; i < 120; i++)
        within_a_wait(i % 2, 1 + i / 2 * 3);
    SAY(1);
    return 0;
}
