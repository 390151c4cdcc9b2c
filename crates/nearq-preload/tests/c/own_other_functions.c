/* A program with its own version of a function of the C library's that cancels, jumps, or creates threads; it calls the original by the C
   library's handle. It does what fails if that function is not the preload's while mutexes and condition variables are. */

#include "check.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <signal.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The C library's function, whatever functions other objects have. */
static void *of_the_c_library(const char *name)
{
    void *found = dlsym(dlopen("libc.so.6", RTLD_LAZY), name);
    if (!found)
        found = dlsym(dlopen("libpthread.so.0", RTLD_LAZY), name);
    SAME(found != NULL, 1);
    return found;
}

#ifndef OWN_CREATE
static int ready;

static void until_ready(int number)
{
    while (__atomic_load_n(&ready, __ATOMIC_SEQ_CST) != number)
        doze();
    rest(20);
}
#endif

#if defined OWN_CANCEL

int pthread_cancel(pthread_t thread)
{
    return ((int (*)(pthread_t))of_the_c_library("pthread_cancel"))(thread);
}

static pthread_cond_t never = PTHREAD_COND_INITIALIZER;

static void *wait_for_ever(void *unused)
{
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_cleanup_push(release_mutex, &mutex);
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    for (;;)
        SAME(pthread_cond_wait(&never, &mutex), 0);
    pthread_cleanup_pop(1);
    return unused;
}

static void try_it(void)
{
    pthread_t thread = start(wait_for_ever, NULL);
    until_ready(1);
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAME(pthread_cancel(thread), 0);
    SAY(join_in_time(thread) == PTHREAD_CANCELED);
}

#elif defined OWN_JUMP

void siglongjmp(sigjmp_buf buffer, int value)
{
    ((void (*)(sigjmp_buf, int))of_the_c_library("siglongjmp"))(buffer, value);
    abort();
}

static sigjmp_buf target;

static void jump(int signal)
{
    (void)signal;
    siglongjmp(target, 1);
}

static void *jump_out_of_a_wait(void *unused)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    if (sigsetjmp(target, 1) == 0)
        SAME(pthread_mutex_lock(&mutex), -1);
    return unused;
}

static void *wait_behind(void *unused)
{
    __atomic_add_fetch(&ready, 1, __ATOMIC_SEQ_CST);
    SAME(pthread_mutex_lock(&mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    return unused;
}

static void try_it(void)
{
    struct sigaction action = { .sa_handler = jump };
    SAME(sigaction(SIGUSR1, &action, NULL), 0);
    SAME(pthread_mutex_lock(&mutex), 0);
    pthread_t first = start(jump_out_of_a_wait, NULL);
    until_ready(1);
    pthread_t second = start(wait_behind, NULL);
    until_ready(2);
    SAME(pthread_kill(first, SIGUSR1), 0);
    SAME(join_in_time(first), NULL);
    SAME(pthread_mutex_unlock(&mutex), 0);
    SAY(join_in_time(second) == NULL);
}

#elif defined OWN_CREATE

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*main)(void *), void *argument)
{
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *) = of_the_c_library("pthread_create");
    return next(thread, attributes, main, argument);
}

static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static long count;

static void *fight(void *unused)
{
    for (int i = 0; i < 20000; i++) {
        SAME(pthread_mutex_lock(&mutex), 0);
        count++;
        if (count == 40000)
            SAME(pthread_cond_broadcast(&changed), 0);
        SAME(pthread_mutex_unlock(&mutex), 0);
    }
    return unused;
}

static void try_it(void)
{
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        threads[i] = start(fight, NULL);
    SAME(pthread_mutex_lock(&mutex), 0);
    while (count < 40000)
        SAME(pthread_cond_wait(&changed, &mutex), 0);
    SAME(pthread_mutex_unlock(&mutex), 0);
    for (int i = 0; i < 4; i++)
        SAME(join_in_time(threads[i]), NULL);
    SAY(count == 80000);
}

#endif

int main(void)
{
    alarm(100);
    try_it();
    return 0;
}
