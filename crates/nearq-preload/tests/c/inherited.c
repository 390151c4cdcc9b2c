/* The child of a fork unlocks mutexes that its thread took in the parent, even those that know their holder: POSIX requires that. The C
   library refuses the latter, so this is only for ours. No thread in the child holds what other threads held in the parent. */

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

static pthread_mutex_t lost_recursive = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t lost_checking = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static int holds;

static void *hold(void *unused)
{
    (void)unused;
    SAME(pthread_mutex_lock(&lost_recursive), 0);
    SAME(pthread_mutex_lock(&lost_checking), 0);
    __atomic_store_n(&holds, 1, __ATOMIC_RELEASE);
    for (;;)
        pause();
}

/* In the child, by a thread that gets from the C library the stack of the thread that held them, and so its pthread_t. */
static void *not_lost_to_me(void *holder)
{
    SAME(pthread_mutex_trylock(&lost_recursive), EBUSY);
    SAME(pthread_mutex_unlock(&lost_recursive), EPERM);
    SAME(pthread_mutex_trylock(&lost_checking), EBUSY);
    SAME(pthread_mutex_unlock(&lost_checking), EPERM);
    return (void *)(intptr_t)(pthread_self() == (pthread_t)holder);
}

static int lost(void)
{
    pthread_t holder = start(hold, NULL);
    while (!__atomic_load_n(&holds, __ATOMIC_ACQUIRE))
        doze();
    pid_t child = fork();
    if (child != 0)
        return ended_well(child);
    SAME((intptr_t)join(start(not_lost_to_me, (void *)holder)), 1);
    not_lost_to_me(NULL);
    _exit(0);
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
    SAY(lost());
    SAME(pthread_mutex_lock(&recursive), 0);
    SAME(pthread_mutex_lock(&recursive), 0);
    SAME(pthread_mutex_lock(&checking), 0);
    SAY(give_back(2));
    return 0;
}
