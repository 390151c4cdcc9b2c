/* A thread that is cancelled, and has not reached a cancellation point, creates the first thread: that is not a cancellation point. */

#include "check.h"

static pthread_t first;

static void *other(void *unused)
{
    (void)unused;
    SAY(join(first) == PTHREAD_CANCELED);
    exit(0);
}

int main(void)
{
    pthread_t thread;
    first = pthread_self();
    SAME(pthread_cancel(first), 0);
    SAY(pthread_create(&thread, NULL, other, NULL));
    SAME(fflush(stdout), 0);
    pthread_testcancel();
    return 1;
}
