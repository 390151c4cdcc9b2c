/* Objects that are destroyed, and whose memory is freed, as soon as this is allowed. */

#include "check.h"
#include <semaphore.h>

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

/* The last user removes the object, as soon as the previous one has released the mutex. */
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

/* The thread that notifies removes the object, as soon as all have been notified and have had the mutex. */
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

/* All were notified, and none of them can have the mutex yet: the destroyer holds it, or a thread that waits for the destroyer. */
static sem_t gate;

static void *wait_by_turns(void *argument)
{
    struct object *object = argument;
    SAME(pthread_mutex_lock(&object->mutex), 0);
    object->users++;
    while (!object->go)
        SAME(pthread_cond_wait(object->condvar, &object->mutex), 0);
    if (object->go == 2)
        while (sem_wait(&gate) != 0)
            ;
    SAME(pthread_mutex_unlock(&object->mutex), 0);
    return NULL;
}

static void *wait_for_a_moment(void *argument)
{
    struct object *object = argument;
    SAME(pthread_mutex_lock(&object->mutex), 0);
    object->users++;
    struct timespec soon = after(CLOCK_REALTIME, 1);
    while (!object->go && pthread_cond_timedwait(object->condvar, &object->mutex, &soon) == 0)
        ;
    object->go = 1;
    SAME(pthread_mutex_unlock(&object->mutex), 0);
    return NULL;
}

static void lock_when_waiting(struct object *object, int count)
{
    for (;; sched_yield()) {
        SAME(pthread_mutex_lock(&object->mutex), 0);
        if (object->users == count)
            return;
        SAME(pthread_mutex_unlock(&object->mutex), 0);
    }
}

static void destroy_condvar(struct object *object)
{
    SAME(pthread_cond_destroy(object->condvar), 0);
    SAME(munmap(object->condvar, PAGE), 0);
}

/* How: 0 by a broadcast, 1 one by one, 2 by a broadcast, and the first thread that gets the mutex keeps it. */
static void destroy_before_they_return(int how, int round)
{
    struct object *object = make(0, round);
    object->condvar = page();
    SAME(pthread_cond_init(object->condvar, NULL), 0);
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        threads[i] = start(wait_by_turns, object);
    lock_when_waiting(object, 3);
    object->go = how == 2 ? 2 : 1;
    for (int i = 0; i < 3 && how == 1; i++)
        SAME(pthread_cond_signal(object->condvar), 0);
    if (how != 1)
        SAME(pthread_cond_broadcast(object->condvar), 0);
    if (how == 2)
        SAME(pthread_mutex_unlock(&object->mutex), 0);
    else
        destroy_condvar(object);
    if (how == 2) {
        rest(2);
        destroy_condvar(object);
        for (int i = 0; i < 3; i++)
            SAME(sem_post(&gate), 0);
    } else {
        SAME(pthread_mutex_unlock(&object->mutex), 0);
    }
    for (int i = 0; i < 3; i++)
        join(threads[i]);
    remove_it(object);
}

/* Two threads come to the same deadline; the first that gets the mutex makes the other one leave, and the destroyer frees the object. */
static void destroy_as_they_time_out(int round)
{
    struct object *object = make(0, round);
    object->condvar = page();
    SAME(pthread_cond_init(object->condvar, NULL), 0);
    pthread_t threads[2] = { start(wait_for_a_moment, object), start(wait_for_a_moment, object) };
    lock_when_waiting(object, 2);
    SAME(pthread_cond_signal(object->condvar), 0);
    SAME(pthread_cond_signal(object->condvar), 0);
    object->go = 1;
    destroy_condvar(object);
    SAME(pthread_mutex_unlock(&object->mutex), 0);
    join(threads[0]);
    join(threads[1]);
    remove_it(object);
}

int main(void)
{
    alarm(200);
    SAME(sem_init(&gate, 0, 0), 0);
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
        /* Already allowed: no thread is blocked there any more. It returns when no thread touches it any more. */
        SAME(pthread_cond_destroy(object->condvar), 0);
        SAME(munmap(object->condvar, PAGE), 0);
        for (int users = 2; users > 0; sched_yield()) {
            SAME(pthread_mutex_lock(&object->mutex), 0);
            users = object->users;
            SAME(pthread_mutex_unlock(&object->mutex), 0);
        }
        /* The last waiting thread may still be on its way out of unlocking. */
        SAME(pthread_mutex_destroy(&object->mutex), 0);
        SAME(munmap(object, PAGE), 0);
        join(threads[0]);
        join(threads[1]);
        well++;
    }
    SAY(well);
    for (int round = 0; round < all / 4; round++) {
        destroy_before_they_return(round % 3, round);
        destroy_as_they_time_out(round);
        well++;
    }
    SAY(well);
    return 0;
}
