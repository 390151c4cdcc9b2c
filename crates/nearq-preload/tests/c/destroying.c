/* Objects that are destroyed, and whose memory is taken away, the moment that this is allowed. */

#include "check.h"

enum { PAGE = 4096 };

struct object {
    pthread_mutex_t mutex;
    int users, go;
    /* In memory of its own. */
    pthread_cond_t *condvar;
};

static pthread_mutexattr_t *checking;

static void remove_it(struct object *object)
{
    SAME(pthread_mutex_destroy(&object->mutex), 0);
    SAME(munmap(object, PAGE), 0);
}

static void *page(void)
{
    void *page = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SAME(page != MAP_FAILED, 1);
    return page;
}

/* Whoever is the last user removes the object, as soon as the one before has given the mutex back. */
static void *use(void *argument)
{
    struct object *object = argument;
    SAME(pthread_mutex_lock(&object->mutex), 0);
    int left = --object->users;
    SAME(pthread_mutex_unlock(&object->mutex), 0);
    if (left == 0)
        remove_it(object);
    return NULL;
}

/* Whoever notifies removes the object, as soon as all have been notified and have had the mutex. */
static void *wait_for_go(void *argument)
{
    struct object *object = argument;
    SAME(pthread_mutex_lock(&object->mutex), 0);
    object->users++;
    while (!object->go)
        SAME(pthread_cond_wait(object->condvar, &object->mutex), 0);
    object->users--;
    SAME(pthread_mutex_unlock(&object->mutex), 0);
    return NULL;
}

static struct object *make(int users, int round)
{
    struct object *object = page();
    SAME(pthread_mutex_init(&object->mutex, round % 2 ? checking : NULL), 0);
    object->users = users;
    return object;
}

int main(void)
{
    checking = type(PTHREAD_MUTEX_ERRORCHECK);
    int well = 0, all = rounds(500, 4000);
    for (int round = 0; round < all; round++) {
        struct object *object = make(3, round);
        pthread_t threads[2] = { start(use, object), start(use, object) };
        use(object);
        join(threads[0]);
        join(threads[1]);
        well++;
    }
    SAY(well);
    for (int round = 0; round < all / 2; round++) {
        struct object *object = make(0, round);
        object->condvar = page();
        SAME(pthread_cond_init(object->condvar, NULL), 0);
        pthread_t threads[2] = { start(wait_for_go, object), start(wait_for_go, object) };
        for (int waiting = 0; waiting < 2; sched_yield()) {
            SAME(pthread_mutex_lock(&object->mutex), 0);
            waiting = object->users;
            SAME(pthread_mutex_unlock(&object->mutex), 0);
        }
        SAME(pthread_mutex_lock(&object->mutex), 0);
        object->go = 1;
        SAME(pthread_cond_broadcast(object->condvar), 0);
        SAME(pthread_mutex_unlock(&object->mutex), 0);
        /* Allowed already: nobody is blocked there any more. It returns when nobody touches it any more. */
        SAME(pthread_cond_destroy(object->condvar), 0);
        SAME(munmap(object->condvar, PAGE), 0);
        for (int users = 2; users > 0; sched_yield()) {
            SAME(pthread_mutex_lock(&object->mutex), 0);
            users = object->users;
            SAME(pthread_mutex_unlock(&object->mutex), 0);
        }
        /* The last one that waited may still be on its way out of unlocking. */
        SAME(pthread_mutex_destroy(&object->mutex), 0);
        SAME(munmap(object, PAGE), 0);
        join(threads[0]);
        join(threads[1]);
        well++;
    }
    SAY(well);
    return 0;
}
