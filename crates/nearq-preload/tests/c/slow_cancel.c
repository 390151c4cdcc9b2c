/* A library in front of the C library that delays a thread on its way to cancel another one. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

int is_cancelling;

int pthread_cancel(pthread_t thread)
{
    int (*next)(pthread_t) = (int (*)(pthread_t))dlsym(RTLD_NEXT, "pthread_cancel");
    struct timespec time = { 0, 200000000 };
    __atomic_store_n(&is_cancelling, 1, __ATOMIC_SEQ_CST);
    nanosleep(&time, NULL);
    return next(thread);
}
