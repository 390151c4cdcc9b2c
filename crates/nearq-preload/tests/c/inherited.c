/* The child of a fork gives back mutexes that its thread took in the parent, also those that know their holder: POSIX says so. The C
   library refuses the latter, so this is for ours only. */

#include "check.h"

static pthread_mutex_t recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;

static void *not_mine(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_unlock(&checking), EPERM);
    SAME(pthread_mutex_trylock(&recursive), EBUSY);
    return NULL;
}

static int give_back(int depth)
{
    pid_t child = fork();
    if (child != 0)
        return ended_well(child);
    join(start(not_mine, NULL));
    SAME(pthread_mutex_lock(&checking), EDEADLK);
    if (depth > 0)
        SAME(give_back(depth - 1), 1);
    SAME(pthread_mutex_lock(&recursive), 0);
    for (int i = 0; i < 3; i++)
        SAME(pthread_mutex_unlock(&recursive), 0);
    SAME(pthread_mutex_unlock(&recursive), EPERM);
    SAME(pthread_mutex_unlock(&checking), 0);
    SAME(pthread_mutex_unlock(&checking), EPERM);
    _exit(0);
}

int main(void)
{
    SAME(pthread_mutex_lock(&recursive), 0);
    SAME(pthread_mutex_lock(&recursive), 0);
    SAME(pthread_mutex_lock(&checking), 0);
    SAY(give_back(2));
    return 0;
}
