/* An allocator that holds mutexes while it works, and must not be called again by the same thread during that: so what a mutex does must
   not allocate. Threads come and go, allocate even when they end, and `errno` is left alone. */

#include "check.h"

enum { ARENA = 64 << 20, THREADS = 4 };

static char arena[ARENA] __attribute__((aligned(16)));
static size_t used;
static long pieces;
static pthread_mutex_t arena_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t count_mutex = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static long allocations;
static _Thread_local int inside;

static void enter(pthread_mutex_t *mutex)
{
    if (inside) {
        static const char text[] = "the allocator was called by a mutex\n";
        _exit(write(2, text, sizeof text - 1) > 0 ? 3 : 4);
    }
    inside = 1;
    int before = errno;
    if (pthread_mutex_lock(mutex) != 0 || errno != before)
        abort();
}

static void leave(pthread_mutex_t *mutex)
{
    int before = errno;
    if (pthread_mutex_unlock(mutex) != 0 || errno != before)
        abort();
    inside = 0;
}

void *malloc(size_t size)
{
    size = (size + 31) & ~(size_t)15;
    enter(&arena_mutex);
    if (used + size > ARENA)
        abort();
    char *piece = arena + used;
    used += size;
    /* Now and then it sleeps while it holds one, so that others have to wait on a machine of any speed and load. */
    if (++pieces % 1000 == 0)
        doze();
    leave(&arena_mutex);
    enter(&count_mutex);
    allocations++;
    leave(&count_mutex);
    *(size_t *)piece = size - 16;
    return piece + 16;
}

void free(void *piece)
{
    if (piece == NULL)
        return;
    enter(&count_mutex);
    allocations--;
    leave(&count_mutex);
}

void *calloc(size_t count, size_t size)
{
    return memset(malloc(count * size), 0, count * size);
}

void *realloc(void *piece, size_t size)
{
    void *moved = malloc(size);
    if (piece != NULL) {
        size_t had = ((size_t *)piece)[-2];
        memcpy(moved, piece, had < size ? had : size);
        free(piece);
    }
    return moved;
}

void *memalign(size_t alignment, size_t size)
{
    uintptr_t piece = (uintptr_t)malloc(size + alignment);
    return (void *)((piece + alignment - 1) & ~(alignment - 1));
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return memalign(alignment, size);
}

int posix_memalign(void **piece, size_t alignment, size_t size)
{
    *piece = memalign(alignment, size);
    return 0;
}

static pthread_key_t key;

/* After the thread's own values are gone. It registers itself again, as long as the library calls it. */
static void last_words(void *again)
{
    for (int i = 0; i < 20; i++) {
        free(malloc(10));
        sched_yield();
    }
    SAME(pthread_setspecific(key, again), 0);
}

static void *allocate(void *argument)
{
    void *pieces[16];
    SAME(pthread_setspecific(key, argument), 0);
    for (int round = 0; round < 200; round++) {
        errno = EXDEV;
        for (int i = 0; i < 16; i++)
            pieces[i] = malloc(8);
        if (round % 32 == 0)
            sched_yield();
        for (int i = 0; i < 16; i++)
            free(pieces[i]);
        SAME(errno, EXDEV);
    }
    return NULL;
}

int main(void)
{
    SAME(pthread_key_create(&key, last_words), 0);
    int ended = 0, all = rounds(30, 50);
    for (int round = 0; round < all; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            threads[i] = start(allocate, &key);
        for (int i = 0; i < THREADS; i++) {
            join(threads[i]);
            ended++;
        }
    }
    SAY(ended);
    return 0;
}
