/* Runs another program, after having used mutexes of its own. */

#include "check.h"

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

int main(int count, char **arguments)
{
    SAME(count >= 2, 1);
    SAME(pthread_mutex_lock(&mutex), 0);
    pid_t child = fork();
    if (child == 0) {
        execv(arguments[1], arguments + 1);
        _exit(127);
    }
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(ended_well(child));
    return 0;
}
