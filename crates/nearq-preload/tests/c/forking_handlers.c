/* Signal handlers that fork, in a program with one thread: in the middle of a fork. */

#include "check.h"

#include <signal.h>
#include <sys/time.h>

static volatile int forks;

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

int main(void)
{
    within_a_fork();
    return 0;
}
