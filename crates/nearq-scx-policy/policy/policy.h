/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * The decisions of the node affine scheduler: where a task is at home, on which CPU it wakes up, in which queue it waits, and from which
 * queues a CPU takes. How they are carried out is left to the caller.
 *
 * The same text is compiled into the BPF program that the kernel runs and into a user-space library that is tested and that schedules the
 * simulated machine. So nothing here calls out: the caller passes what happened, gets back what to do, and has the queues. There is one
 * queue for each last-level cache, ordered by virtual time.
 *
 * The includer provides u8, u16, u32, u64, s32, s64, bool, nq_for(i, from, to), a loop that its verifier accepts, and nq_barrier(), which
 * orders all memory accesses before it before all after it.
 *
 * Protocol
 * - There is one `struct nq` for the machine; all CPUs call these functions at once. Words of the masks and the counts are only changed by
 *   atomic operations. Everything else in it is a hint: read and written without order, and wrong for a moment without harm.
 * - A `struct nq_task` is touched only by the CPU that holds the task: the kernel calls the hooks of one task one at a time.
 * - A CPU that makes a task wait first counts it (nq_enqueue), then searches an idle CPU (nq_wake). A CPU that finds nothing to run first
 *   marks itself idle (nq_idle), then checks the queues once more (nq_has_work). Both steps of both are sequentially consistent, so at
 *   least one of them sees the other: no task waits beside an idle CPU that may run it. A task may be counted before it is in its queue, so
 *   a CPU that finds fewer there than are counted checks again (nq_checks_again).
 * - Sizes are powers of two and indices are masked, so that every access is within bounds whatever the value of a racing index.
 *
 * The rules follow Erich Focht's node affine scheduler for Linux 2.6.0-test1 (2003): each task has a home, chosen by load when it begins a
 * program; which tasks a CPU may take from another node depends on their homes; strays are sent home.
 *
 * For a CPU, a task that waits on another node is one of three: its own, if its home is the CPU's node; native, if its home is the node
 * where it waits; or a stray, if its home is neither. A CPU takes them in this order: own tasks, strays, natives (enum nq_group). The
 * weight `own_bonus` decides from which queue. If it is not zero, that is the rule of 2003: the queue with the most tasks for each CPU, where
 * each own task counts more by that much (nq_seen_crowd). If it is zero, an idle CPU takes from the nearest queue, but first from those with
 * own tasks; a busy CPU goes by load alone, and takes the first task whatever its home.
 *
 * The crate nearq-home makes the same decisions for tasks that a kernel keeps on masks: where a new task is at home, which imbalance is
 * worth the way, how long a stray stays away. It samples once a period, whereas here each wake-up and each idle CPU is seen, so some
 * decisions differ: tests/policy/agreement.rs of nearq-policy-harness says which and why, and checks that the rest is the same.
 */
#ifndef NEARQ_POLICY_H
#define NEARQ_POLICY_H

enum nq_size {
	NQ_CPUS = 1024,
	NQ_WORDS = NQ_CPUS / 64,
	NQ_LLCS = 256,
	NQ_NODES = 32,
};

/* No CPU, node or queue. */
#define NQ_NONE 0xffffffffU
/* A CPU's capacity if all are alike, and the weight at nice 0. */
#define NQ_UNIT 1024
#define NQ_WEIGHT 100
/* Distance from a node to itself. */
#define NQ_LOCAL 10

/*
 * The kernel ejects a scheduler that lets a task wait too long. So a waiting task is not further from those before it than all of them use
 * up in NQ_FAR nanoseconds of CPU time. A task that has waited for NQ_OLD nanoseconds gets a CPU whatever its virtual time: one such task
 * each NQ_AGE milliseconds on each CPU.
 */
#define NQ_FAR 1500000000ULL
#define NQ_OLD 2000000000ULL
#define NQ_AGE 20

#define nq_read(x) (*(volatile __typeof__(x) *)&(x))
#define nq_write(x, value) (*(volatile __typeof__(x) *)&(x) = (value))

/* ---- what there is ---- */

struct nq_cpu {
	u32 llc;
	u32 node;
	/* The next CPU of the same core, in a ring. */
	u32 sibling;
	u32 capacity;
};

struct nq_llc {
	u32 node;
	/* Words of the mask that are not all zero: from, up to. */
	u32 from;
	u32 to;
	u32 unused;
	u64 cpus[NQ_WORDS];
};

struct nq_node {
	/* Its caches are those from this index. */
	u32 llc;
	u32 llcs;
	u32 from;
	u32 to;
	u64 cpus[NQ_WORDS];
	/* All nodes, itself first, the nearest next. */
	u32 near[NQ_NODES];
	u32 distance[NQ_NODES];
	/* The operating system's number. */
	u32 id;
	u32 unused;
};

/* What can be set; times in nanoseconds. */
struct nq_weights {
	/* A task's slice while no task waits for the same CPUs, and after how much of it a tick ends it if one does. */
	u64 slice;
	u64 busy_slice;
	/* The most that a task that slept is owed. */
	u64 credit;
	/* A task that wakes up interrupts one whose virtual time is later by this much. */
	u64 preempt;
	/* For how long tasks must have waited in a queue before an idle CPU of a node at distance 20 takes one; twice that at 30. */
	u64 steal_delay;
	/* How many more tasks for each CPU, in thousandths, another node must have before a busy CPU takes one: at distance 10, and for
	 * each further 10 of distance; and how much more in percent. */
	u64 imbalance;
	u64 imbalance_step;
	u64 imbalance_percent;
	/* How much more, in thousandths, a waiting task counts for CPUs of its home; 0: see the top. */
	u64 own_bonus;
	/* How often a busy CPU checks other queues, at most. */
	u64 relief_interval;
	/* A stray that runs is not sent home sooner than this; doubled for one that had to leave again soon. */
	u64 stay;
	/* A queue that no CPU has served for this long is served by any CPU that may. */
	u64 rescue;
	/* How often loads are smoothed. */
	u64 period;
};

/* ---- what happens ---- */

enum nq_event {
	/* A task got a home because it began a program, because it was forked, as a thread, because it was told, because of its memory,
	 * because its home was crowded and another node was not, because it may not run at its home any more. */
	NQ_HOME_EXEC,
	NQ_HOME_FORK,
	NQ_HOME_THREAD,
	NQ_HOME_TOLD,
	NQ_HOME_MEMORY,
	NQ_HOME_ROOM,
	NQ_HOME_AFFINITY,
	/* A task woke up on an idle CPU: its previous one, one under the same cache, on its node, elsewhere. */
	NQ_WOKE_PREVIOUS,
	NQ_WOKE_CACHE,
	NQ_WOKE_NODE,
	NQ_WOKE_AWAY,
	/* There was no idle CPU: it waits. It interrupted the task on its CPU. */
	NQ_WAITED,
	NQ_PREEMPTED,
	/* A program had said near which CPU a task should wake up. */
	NQ_HINTED,
	/*
	 * A CPU took a waiting task: from its cache, from its node, a task whose home is here from elsewhere, a task of another node
	 * because this CPU was idle, because that node is more crowded, because no other CPU served the queue.
	 */
	NQ_TOOK_CACHE,
	NQ_TOOK_NODE,
	NQ_TOOK_OWN,
	NQ_TOOK_IDLE,
	NQ_TOOK_RELIEF,
	NQ_TOOK_RESCUE,
	/* A task began to run away from home; came home again; was sent home by a tick. */
	NQ_LEFT,
	NQ_RETURNED,
	NQ_SENT,
	/* A task changed its node, whatever its home is. */
	NQ_CROSSED,
	NQ_EVENTS,
};

/* Each in cache lines of its own. */
struct nq_cpu_state {
	/* The home of the task that runs here, or NQ_NONE, and whether any does. */
	u32 home;
	u32 running;
	/* Of the task that runs here: its virtual time when it was last counted, when that was, and its weight. */
	u64 vtime;
	u64 counted_at;
	u32 weight;
	/* When it last searched for tasks that have waited long, in milliseconds; the number wraps around. */
	u32 aged_at;
	u64 relief_at;
	/* Nanoseconds that tasks ran here at home, and away from home. */
	u64 home_ns;
	u64 away_ns;
	u64 events[NQ_EVENTS];
	/* The position of nq_next, and what it has found: the queue, which group of its tasks, and the event to count if one is taken. */
	u32 step;
	u32 at;
	u32 queue;
	u32 group;
	u32 event;
	/* The idle CPU that the last tick here has claimed for waiting tasks, or NQ_NONE. */
	u32 wakes;
	/* How often in a row it has checked again for a task that was counted and not there yet: see nq_checks_again. */
	u32 rechecks;
	/* The queues of other nodes that the search has been at. */
	u64 tried[NQ_LLCS / 64];
} __attribute__((aligned(128)));

struct nq_llc_state {
	/* Virtual time, and when it was last advanced. */
	u64 vnow;
	u64 advanced_at;
	u32 waiting;
	u32 running;
	/* The idle CPU that a tick has last woken for tasks that wait here. */
	u32 woke;
	u32 unused;
	/* Since when tasks wait, and when one was last served. */
	u64 since;
	u64 served;
	/* What its online CPUs can do. */
	u32 capacity;
	/* Tasks that wait here, by home. They are written with `waiting`, by the same CPUs, and read by CPUs that search on other nodes. */
	u32 waiting_of[NQ_NODES];
} __attribute__((aligned(128)));

struct nq_node_state {
	/* Tasks that exist and are at home here; those of them that run or wait, on any node. */
	u32 homes;
	u32 wanting;
	/* Tasks that wait or run here, whatever their home, and the same in thousandths, smoothed. */
	u32 waiting;
	u32 running;
	u32 load;
	u32 capacity;
	/* Tasks that run here and are at home elsewhere. */
	u32 strays;
	u64 smoothed_at;
	/* Tasks that are at home here and want a CPU, in thousandths, smoothed. */
	u32 demand;
} __attribute__((aligned(128)));

enum nq_why {
	NQ_WHY_NONE,
	NQ_WHY_EXEC,
	NQ_WHY_FORK,
	NQ_WHY_THREAD,
	NQ_WHY_TOLD,
	NQ_WHY_MEMORY,
	/* Its old home was crowded for long, and there was room here. */
	NQ_WHY_ROOM,
	NQ_WHY_AFFINITY,
	/* It existed before the scheduler was loaded: the node where it ran. */
	NQ_WHY_FOUND,
	/* A home was told and taken back: it stays there until there is a reason to move. */
	NQ_WHY_TAKEN_BACK,
};

/* For a task at home for NQ_WHY_TOLD: the task whose home was told. */
enum nq_told_of {
	NQ_TOLD_OF_NONE,
	/* Its own, or its process's: until that is taken back. */
	NQ_TOLD_OF_IT,
	/* That of the task that forked its process, at the time of the fork: for good, because nothing is kept that could be taken back. */
	NQ_TOLD_OF_PARENT,
};

struct nq_task {
	u64 vtime;
	/* Since when it runs, and up to when its CPU time is counted. */
	u64 began_at;
	u64 ran_at;
	/* Since when it waits, if it does. */
	u64 waits_at;
	/* Since when it is away, and when it last came home. */
	u64 left_at;
	u64 returned_at;
	u64 home_ns;
	u64 away_ns;
	/* How much of these two has been added to its process's account. */
	u64 accounted;
	u64 allowed[NQ_WORDS];
	u32 weight;
	u32 home;
	/* The node and the CPU where it ran last; NQ_NONE before it does. */
	u32 place;
	u32 cpu;
	/* The queue to whose clock its virtual time refers. */
	u32 clock;
	/* The queue where it is counted as waiting. */
	u32 queue;
	u32 crossings;
	/* How often in a row it had to leave soon after it had come home, at most 3. */
	u32 swings;
	u8 why;
	u8 wanting;
	/* 1 while it runs, 2 while it is counted as a stray where it does. */
	u8 running;
	u8 homed;
	/* It waits for the CPU of the task that woke it, which is about to sleep. */
	u8 follows;
	/* One of enum nq_told_of. */
	u8 told;
	/* Counts wake-ups and wraps around; the caller uses it. */
	u16 wakes;
};

/* A process, by the number of its first thread. */
struct nq_process {
	/* Where its next thread is at home. */
	u32 home;
	/* The number of its threads, and below by their homes. */
	u32 threads;
	/* Whether `home` is what was told of the task that forked it: then that also applies to its threads. */
	u32 inherited;
	/*
	 * The round in which the includer last listed it as one that has run, and how many bytes of its own memory it had touched by then.
	 */
	u32 listed;
	u64 touched;
	u32 at_home[NQ_NODES];
	/* CPU time by node, in nanoseconds. */
	u64 ran[NQ_NODES];
};

/*
 * What user space tells about a thread, or about a process by the number of its first thread: its home, as the operating system numbers
 * nodes, and the reason. That is NQ_WHY_TOLD, or NQ_WHY_MEMORY or NQ_WHY_ROOM, which are valid only while the task's memory exists.
 *
 * A home of the first thread alone has that thread's number with NQ_ALONE, which no number of a thread contains.
 */
#define NQ_ALONE 0x80000000u
struct nq_told {
	u32 node;
	u32 why;
};

struct nq {
	u32 cpus;
	u32 llcs;
	u32 nodes;
	/* A queue that no CPU serves, or NQ_NONE. */
	u32 starving;
	/* The queue that the last tick checked. */
	u32 last_checked;
	u32 unused;
	struct nq_weights weights;
	u64 online[NQ_WORDS];
	u64 idle[NQ_WORDS];
	/* CPUs of cores of which every CPU is idle. */
	u64 idle_cores[NQ_WORDS];
	struct nq_cpu cpu[NQ_CPUS];
	struct nq_llc llc[NQ_LLCS];
	struct nq_node node[NQ_NODES];
	struct nq_cpu_state on_cpu[NQ_CPUS];
	struct nq_llc_state on_llc[NQ_LLCS];
	struct nq_node_state on_node[NQ_NODES];
};

#define NQ_CPU(q, i) (&(q)->cpu[(i) & (NQ_CPUS - 1)])
#define NQ_LLC(q, i) (&(q)->llc[(i) & (NQ_LLCS - 1)])
#define NQ_NODE(q, i) (&(q)->node[(i) & (NQ_NODES - 1)])
#define NQ_ON_CPU(q, i) (&(q)->on_cpu[(i) & (NQ_CPUS - 1)])
#define NQ_ON_LLC(q, i) (&(q)->on_llc[(i) & (NQ_LLCS - 1)])
#define NQ_ON_NODE(q, i) (&(q)->on_node[(i) & (NQ_NODES - 1)])
/* How many tasks of a home wait in a queue. */
#define NQ_WAITING_OF(q, i, home) (NQ_ON_LLC(q, i)->waiting_of[(home) & (NQ_NODES - 1)])
#define NQ_WORD(i) (((i) / 64) & (NQ_WORDS - 1))
#define NQ_BIT(i) (1ULL << ((i) & 63))

#define NQ_FN static inline __attribute__((always_inline, unused))
/* For functions that are called from several places or have loops. */
#ifndef NQ_LARGE_FN
#define NQ_LARGE_FN static __attribute__((noinline, unused))
#endif
/*
 * For functions with many ways to their end that are called early. The kernel's verifier follows each way through a static function on into
 * its caller, so the ways multiply. A global function it checks once, and its caller with any result. Pointers may be null there, as far as
 * the verifier knows, so such a function looks.
 */
#ifndef NQ_GLOBAL_FN
#define NQ_GLOBAL_FN NQ_LARGE_FN
#endif

NQ_FN void nq_count(struct nq *q, u32 cpu, u32 event)
{
	if (event < NQ_EVENTS)
		NQ_ON_CPU(q, cpu)->events[event]++;
}

NQ_FN bool nq_may_run(struct nq_task *t, u32 cpu)
{
	return t->allowed[NQ_WORD(cpu)] & NQ_BIT(cpu);
}

NQ_FN u32 nq_node_of(struct nq *q, u32 cpu)
{
	return NQ_CPU(q, cpu)->node;
}

NQ_FN u32 nq_distance(struct nq *q, u32 from, u32 to)
{
	return NQ_NODE(q, from)->distance[to & (NQ_NODES - 1)];
}

/* How many steps of 10 a distance is beyond the local one, rounded up: 0 for 10, 1 for 11 to 20. */
NQ_FN u64 nq_steps(u32 distance)
{
	return distance > NQ_LOCAL ? (distance - NQ_LOCAL + 9) / 10 : 0;
}

/* ---- idle CPUs ---- */

NQ_FN bool nq_is_online(struct nq *q, u32 cpu)
{
	return nq_read(q->online[NQ_WORD(cpu)]) & NQ_BIT(cpu);
}

/* A CPU has nothing to run. One that is going offline has nothing either, but no task must be sent there. */
NQ_LARGE_FN void nq_idle(struct nq *q, u32 cpu)
{
	u32 other = cpu, i;
	bool whole = true;

	if (!nq_is_online(q, cpu))
		return;
	__sync_fetch_and_or(&q->idle[NQ_WORD(cpu)], NQ_BIT(cpu));
	if (NQ_CPU(q, cpu)->sibling == cpu) {
		__sync_fetch_and_or(&q->idle_cores[NQ_WORD(cpu)], NQ_BIT(cpu));
		return;
	}
	nq_for(i, 0, 8) {
		other = NQ_CPU(q, other)->sibling;
		if (other == cpu)
			break;
		if (!(nq_read(q->idle[NQ_WORD(other)]) & NQ_BIT(other)))
			whole = false;
	}
	if (!whole)
		return;
	nq_for(i, 0, 8) {
		__sync_fetch_and_or(&q->idle_cores[NQ_WORD(other)], NQ_BIT(other));
		other = NQ_CPU(q, other)->sibling;
		if (other == cpu)
			break;
	}
}

/* A CPU is no longer idle, or will not be in a moment. Returns whether it was. */
NQ_LARGE_FN bool nq_busy(struct nq *q, u32 cpu)
{
	u32 other = cpu, i;
	u64 was;

	if (!(nq_read(q->idle[NQ_WORD(cpu)]) & NQ_BIT(cpu)))
		return false;
	was = __sync_fetch_and_and(&q->idle[NQ_WORD(cpu)], ~NQ_BIT(cpu));
	if (NQ_CPU(q, cpu)->sibling == cpu) {
		__sync_fetch_and_and(&q->idle_cores[NQ_WORD(cpu)], ~NQ_BIT(cpu));
		return was & NQ_BIT(cpu);
	}
	nq_for(i, 0, 8) {
		if (nq_read(q->idle_cores[NQ_WORD(other)]) & NQ_BIT(other))
			__sync_fetch_and_and(&q->idle_cores[NQ_WORD(other)], ~NQ_BIT(other));
		other = NQ_CPU(q, other)->sibling;
		if (other == cpu)
			break;
	}
	return was & NQ_BIT(cpu);
}

/* The index of the lowest bit of a word that is not zero. */
NQ_GLOBAL_FN u32 nq_lowest(u64 word)
{
	u32 at = 0;

	if (!(word & 0xffffffffULL)) {
		at += 32;
		word >>= 32;
	}
	if (!(word & 0xffff)) {
		at += 16;
		word >>= 16;
	}
	if (!(word & 0xff)) {
		at += 8;
		word >>= 8;
	}
	if (!(word & 0xf)) {
		at += 4;
		word >>= 4;
	}
	if (!(word & 3)) {
		at += 2;
		word >>= 2;
	}
	return at + !(word & 1);
}

/* Claims an idle CPU of a word of a mask; if another CPU claims it first, the next one. */
NQ_FN u32 nq_claim_word(struct nq *q, u32 word, u64 idle)
{
	u32 cpu = word * 64 + nq_lowest(idle);

	if (nq_busy(q, cpu))
		return cpu;
	idle &= idle - 1;
	if (!idle)
		return NQ_NONE;
	cpu = word * 64 + nq_lowest(idle);
	return nq_busy(q, cpu) ? cpu : NQ_NONE;
}

/* The same for a word of a cache's CPUs, among those that the task may use. */
NQ_FN u32 nq_claim_in(struct nq *q, struct nq_task *t, u32 llc, u32 i, bool whole_core)
{
	u32 word = i & (NQ_WORDS - 1);
	u64 mask = NQ_LLC(q, llc)->cpus[word] & t->allowed[word];
	u64 idle = mask & (whole_core ? nq_read(q->idle_cores[word]) : nq_read(q->idle[word]));

	return idle ? nq_claim_word(q, word, idle) : NQ_NONE;
}

/* Claims an idle CPU of a cache that the task may use: it counts as busy from now on. */
NQ_LARGE_FN u32 nq_claim_llc(struct nq *q, struct nq_task *t, u32 llc, bool whole_core)
{
	u32 from = NQ_LLC(q, llc)->from, to = NQ_LLC(q, llc)->to, i, cpu;

	if (!t)
		return NQ_NONE;
	/* Most caches are in one word: no loop is needed. */
	if (to - from == 1)
		return nq_claim_in(q, t, llc, from, whole_core);
	nq_for(i, from, to) {
		cpu = nq_claim_in(q, t, llc, i, whole_core);
		if (cpu != NQ_NONE)
			return cpu;
	}
	return NQ_NONE;
}

/* The same on a node, beginning with one of its caches. */
NQ_LARGE_FN u32 nq_claim_node(struct nq *q, struct nq_task *t, u32 node, u32 first, bool whole_core)
{
	u32 llcs = NQ_NODE(q, node)->llcs, base = NQ_NODE(q, node)->llc, i;

	if (llcs == 1)
		return nq_claim_llc(q, t, base, whole_core);
	nq_for(i, 0, llcs) {
		u32 llc = first + i, cpu;

		if (llc >= base + llcs)
			llc -= llcs;
		cpu = nq_claim_llc(q, t, llc, whole_core);
		if (cpu != NQ_NONE)
			return cpu;
	}
	return NQ_NONE;
}

/* The CPUs of a node that the task may use, in one word of the masks. */
NQ_FN u64 nq_may_use(struct nq *q, struct nq_task *t, u32 node, u32 word)
{
	return NQ_NODE(q, node)->cpus[word & (NQ_WORDS - 1)] & t->allowed[word & (NQ_WORDS - 1)];
}

/* Whether any CPU of a node that the task may use is in a mask of the machine. */
NQ_LARGE_FN bool nq_any_of(struct nq *q, struct nq_task *t, u32 node, const u64 *mask)
{
	u32 from = NQ_NODE(q, node)->from, to = NQ_NODE(q, node)->to, i;

	if (!t || !mask || to > NQ_WORDS)
		return false;
	/* Most nodes are in one word: no loop is needed. */
	if (to - from == 1)
		return nq_may_use(q, t, node, from) & nq_read(mask[from & (NQ_WORDS - 1)]);
	nq_for(i, from, to) {
		if (nq_may_use(q, t, node, i) & nq_read(mask[i & (NQ_WORDS - 1)]))
			return true;
	}
	return false;
}

/* Whether any CPU of a node that the task may use is idle. */
NQ_FN bool nq_has_idle(struct nq *q, struct nq_task *t, u32 node)
{
	return nq_any_of(q, t, node, q->idle);
}

/* ---- loads ---- */

/* Tasks for each CPU of a place, in thousandths. A place without CPUs is crowded without limit by a single task. */
NQ_FN u64 nq_crowd(u64 milli, u32 capacity)
{
	if (!capacity)
		return milli ? 1000000000ULL : 0;
	return milli * NQ_UNIT / capacity;
}

NQ_FN u64 nq_llc_crowd(struct nq *q, u32 llc)
{
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);

	return nq_crowd(1000ULL * (nq_read(on->waiting) + nq_read(on->running)), nq_read(on->capacity));
}

NQ_FN u64 nq_node_crowd(struct nq *q, u32 node)
{
	struct nq_node_state *on = NQ_ON_NODE(q, node);

	return nq_crowd(nq_read(on->load), nq_read(on->capacity));
}

/* Whether a place has so much more to do than another one that moving a task over the distance is worth it. */
NQ_FN bool nq_out_of_balance(struct nq *q, u64 there, u64 here, u32 distance)
{
	u64 more = q->weights.imbalance + q->weights.imbalance_step * nq_steps(distance);

	return there > here + more && there * 100 > here * (100 + q->weights.imbalance_percent);
}

/* Loads of a node are smoothed, because those of a moment vary by chance. */
NQ_FN u32 nq_smoothed(u32 before, u32 tasks)
{
	return (3 * before + 1000 * tasks) / 4;
}

NQ_FN void nq_smooth(struct nq *q, u32 node, u64 now)
{
	struct nq_node_state *on = NQ_ON_NODE(q, node);

	if (now - nq_read(on->smoothed_at) < q->weights.period)
		return;
	nq_write(on->smoothed_at, now);
	nq_write(on->load, nq_smoothed(nq_read(on->load), nq_read(on->waiting) + nq_read(on->running)));
	nq_write(on->demand, nq_smoothed(nq_read(on->demand), nq_read(on->wanting)));
}

/* ---- homes ---- */

/* Whether the task may use any online CPU of a node. */
NQ_FN bool nq_is_open(struct nq *q, struct nq_task *t, u32 node)
{
	return nq_any_of(q, t, node, q->online);
}

/*
 * Whether a task could begin on a node at once: a CPU is idle there, or runs a stray, which makes room (nq_displaces), or the task itself
 * runs there and no task waits for its CPU. Its memory is where it begins to run. So if it has to wait for its home and begins elsewhere in
 * the meantime, that home is the wrong one from then on.
 */
NQ_FN bool nq_begins_on(struct nq *q, struct nq_task *t, u32 node)
{
	u32 cpu = t->cpu;

	if (cpu != NQ_NONE && t->wanting && t->queue == NQ_NONE && nq_node_of(q, cpu) == node && nq_may_run(t, cpu) &&
	    !nq_read(NQ_ON_LLC(q, NQ_CPU(q, cpu)->llc)->waiting))
		return true;
	return nq_read(NQ_ON_NODE(q, node)->strays) || nq_has_idle(q, t, node);
}

/*
 * The node where one more task should be at home: the one on which each CPU would then have the least to do, counting tasks that are at
 * home there and want a CPU, wherever they are now; of equal nodes the nearest to `from`. The task itself does not count. A node on which
 * the task could not begin at once counts as if it had half as much more, because what uses its CPUs may be over in a moment.
 */
NQ_LARGE_FN u32 nq_pick(struct nq *q, struct nq_task *t, u32 from)
{
	u32 best = NQ_NONE, nodes = q->nodes, i;
	u64 best_load = 0, best_capacity = 1;

	if (!t)
		return 0;
	if (from >= nodes)
		from = 0;
	nq_for(i, 0, nodes) {
		u32 node = NQ_NODE(q, from)->near[i & (NQ_NODES - 1)];
		u64 capacity = nq_read(NQ_ON_NODE(q, node)->capacity);
		u64 load = nq_read(NQ_ON_NODE(q, node)->wanting);

		if (!capacity || !nq_is_open(q, t, node))
			continue;
		if (t->wanting && t->homed && t->home == node && load)
			load--;
		load = (load + 1) * (nq_begins_on(q, t, node) ? 2 : 3);
		if (best == NQ_NONE || load * best_capacity < best_load * capacity) {
			best = node;
			best_load = load;
			best_capacity = capacity;
		}
	}
	return best == NQ_NONE ? from : best;
}

/*
 * The home of a new thread: its process's home, unless that already has a thread of the process for each of its CPUs; then the nearest node
 * that does not, and if there is none, the node with the fewest of them for each CPU.
 */
NQ_LARGE_FN u32 nq_pick_for_thread(struct nq *q, struct nq_task *t, struct nq_process *process)
{
	u32 best = NQ_NONE, nodes = q->nodes, home, i;
	u64 best_load = 0, best_capacity = 1;

	if (!t || !process)
		return 0;
	home = process->home;
	if (home >= nodes)
		home = 0;
	nq_for(i, 0, nodes) {
		u32 node = NQ_NODE(q, home)->near[i & (NQ_NODES - 1)];
		u64 capacity = nq_read(NQ_ON_NODE(q, node)->capacity);
		u64 load = nq_read(process->at_home[node & (NQ_NODES - 1)]) + 1;

		if (!capacity || !nq_is_open(q, t, node))
			continue;
		if (load * NQ_UNIT <= capacity)
			return node;
		if (best == NQ_NONE || load * best_capacity < best_load * capacity) {
			best = node;
			best_load = load;
			best_capacity = capacity;
		}
	}
	return best == NQ_NONE ? home : best;
}

/*
 * Whether there are several nodes and a task may run on one only. Then its home was not chosen by load: it was bound in order to have its
 * memory there, and may be allowed to run anywhere once it has touched that.
 */
NQ_LARGE_FN bool nq_is_bound(struct nq *q, struct nq_task *t, u32 home)
{
	u32 i;

	if (!t || q->nodes < 2)
		return false;
	nq_for(i, 0, NQ_WORDS) {
		u32 word = i & (NQ_WORDS - 1);

		if (t->allowed[word] & nq_read(q->online[word]) & ~NQ_NODE(q, home)->cpus[word])
			return false;
	}
	return true;
}

/*
 * A task that has used no more CPU time, and touched no more bytes of its own memory, can get another home at almost no cost: moving that
 * much takes some 25 ms. It takes a while until the programs that begin at the same time show where there is room.
 */
#define NQ_YOUNG 1000000000ULL
#define NQ_LITTLE (16ULL << 20)

NQ_FN bool nq_is_young(struct nq *q, struct nq_task *t)
{
	return q->nodes > 1 && t->homed && t->why == NQ_WHY_EXEC && t->home_ns + t->away_ns < NQ_YOUNG;
}

/* The capacity of a node's CPUs, in thousandths of tasks. */
NQ_FN u64 nq_room(struct nq *q, u32 node)
{
	return 1000ULL * nq_read(NQ_ON_NODE(q, node)->capacity) / NQ_UNIT;
}

/*
 * Another home for a task that runs, is alone in its process and has begun its program a moment ago, if its own turns out to be crowded by
 * programs that began at the same time: the nearest node that has room. NQ_NONE if it stays. It counts as if it had been there for long,
 * because other tasks call this in a moment.
 */
NQ_LARGE_FN u32 nq_reconsiders(struct nq *q, struct nq_task *t, u64 touched)
{
	u32 nodes = q->nodes, home, demand, i;

	if (!t || !nq_is_young(q, t) || touched >= NQ_LITTLE)
		return NQ_NONE;
	home = t->home;
	demand = nq_read(NQ_ON_NODE(q, home)->demand);
	/* Half a task too many, and a quarter of one at the new home, may be chance. */
	if (demand < nq_room(q, home) + 500)
		return NQ_NONE;
	nq_for(i, 1, nodes) {
		u32 node = NQ_NODE(q, home)->near[i & (NQ_NODES - 1)];
		u32 there = nq_read(NQ_ON_NODE(q, node)->demand);

		if (there + 1000 > nq_room(q, node) + 250 || !nq_is_open(q, t, node))
			continue;
		nq_write(NQ_ON_NODE(q, home)->demand, demand - 1000);
		nq_write(NQ_ON_NODE(q, node)->demand, there + 1000);
		return node;
	}
	return NQ_NONE;
}

/* The index of the node with this number of the operating system's; NQ_NONE if there is none with CPUs. */
NQ_LARGE_FN u32 nq_node_by_id(struct nq *q, u32 id)
{
	u32 nodes = q->nodes, i;

	nq_for(i, 0, nodes) {
		if (NQ_NODE(q, i)->id == id)
			return i;
	}
	return NQ_NONE;
}

/* Updates whether a task runs on a node, and whether it counts as a stray there. */
NQ_FN void nq_runs_on(struct nq *q, struct nq_task *t, u32 node, bool runs)
{
	if (t->running == 2)
		__sync_fetch_and_sub(&NQ_ON_NODE(q, node)->strays, 1);
	t->running = runs ? 1 + (node != t->home) : 0;
	if (t->running == 2)
		__sync_fetch_and_add(&NQ_ON_NODE(q, node)->strays, 1);
}

/* Sets a task's home. */
NQ_FN void nq_set_home(struct nq *q, struct nq_task *t, u32 home, u8 why)
{
	if (t->homed) {
		__sync_fetch_and_sub(&NQ_ON_NODE(q, t->home)->homes, 1);
		if (t->wanting)
			__sync_fetch_and_sub(&NQ_ON_NODE(q, t->home)->wanting, 1);
		if (t->queue != NQ_NONE)
			__sync_fetch_and_sub(&NQ_WAITING_OF(q, t->queue, t->home), 1);
	}
	__sync_fetch_and_add(&NQ_ON_NODE(q, home)->homes, 1);
	if (t->wanting)
		__sync_fetch_and_add(&NQ_ON_NODE(q, home)->wanting, 1);
	if (t->queue != NQ_NONE)
		__sync_fetch_and_add(&NQ_WAITING_OF(q, t->queue, home), 1);
	t->home = home;
	t->why = why;
	t->told = why == NQ_WHY_TOLD ? NQ_TOLD_OF_IT : NQ_TOLD_OF_NONE;
	t->homed = true;
	t->swings = 0;
	if (t->running) {
		nq_runs_on(q, t, nq_node_of(q, t->cpu), true);
		nq_write(NQ_ON_CPU(q, t->cpu)->home, home);
	}
	/* It goes to its new home from where it is; that is not a return. */
	t->place = NQ_NONE;
	t->left_at = 0;
}

/* ---- homes that are told ---- */

/* Whether a home that user space gives for this reason was told from outside, and not found by sampling memory. */
NQ_FN bool nq_is_told(u32 why)
{
	return why != NQ_WHY_MEMORY && why != NQ_WHY_ROOM;
}

/* The event to count for a home that user space gives for this reason. */
NQ_FN u32 nq_given_as(u32 why)
{
	if (why == NQ_WHY_MEMORY)
		return NQ_HOME_MEMORY;
	return why == NQ_WHY_ROOM ? NQ_HOME_ROOM : NQ_HOME_TOLD;
}

/*
 * The home that a task inherits from the task that forks its process, if that one's was told; or NQ_NONE. `hinted` is the node now
 * told of the forking task, or NQ_NONE: a home that was told and taken back is not inherited, whether the forking task has noticed either
 * yet or not.
 */
NQ_FN u32 nq_inherits(struct nq *q, struct nq_task *t, struct nq_task *parents, u32 hinted)
{
	u32 home = hinted;

	if (home == NQ_NONE && parents->why == NQ_WHY_TOLD && parents->told == NQ_TOLD_OF_PARENT)
		home = parents->home;
	return home != NQ_NONE && nq_is_open(q, t, home) ? home : NQ_NONE;
}

/* The task's home is the one that it inherited, or that its process did. */
NQ_FN void nq_inherited(struct nq_task *t)
{
	t->told = NQ_TOLD_OF_PARENT;
}

/*
 * Whether it keeps its home when it begins a program: it does if it has inherited one that was told. If it may no longer run there, it got
 * another home when it lost its CPUs. Not being able to leave its CPU for a moment is no reason to lose it.
 */
NQ_FN bool nq_keeps_home(struct nq_task *t)
{
	return t->homed && t->why == NQ_WHY_TOLD && t->told == NQ_TOLD_OF_PARENT;
}

/* A home is told that it has already. Returns whether that is new to it. */
NQ_FN bool nq_told_to_stay(struct nq_task *t)
{
	if (t->why == NQ_WHY_TOLD && t->told == NQ_TOLD_OF_IT)
		return false;
	t->why = NQ_WHY_TOLD;
	t->told = NQ_TOLD_OF_IT;
	return true;
}

/* No home is told of it, or no longer: it stays where it is, and its children inherit nothing. */
NQ_FN void nq_untold(struct nq_task *t)
{
	if (t->why != NQ_WHY_TOLD || t->told == NQ_TOLD_OF_PARENT)
		return;
	t->why = NQ_WHY_TAKEN_BACK;
	t->told = NQ_TOLD_OF_NONE;
}

/* ---- virtual time ---- */

/*
 * A task's virtual time is its CPU time divided by its weight; the task that has least goes first. A queue's virtual time is about the
 * least of the tasks that wait there or run under its cache. Ticks advance it (nq_advance), and it never goes back. The virtual time of an
 * arriving task is set near it.
 */

/* The caller passes the virtual time of the first task of a queue, or NQ_NOBODY. */
#define NQ_NOBODY 0xffffffffffffffffULL

NQ_LARGE_FN void nq_advance(struct nq *q, u32 llc, u64 first, u64 now)
{
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);
	u32 from = NQ_LLC(q, llc)->from, to = NQ_LLC(q, llc)->to, i, j;
	u64 least = nq_read(on->vnow);
	s64 ahead = 0;
	bool any = first != NQ_NOBODY;

	/* Once for all CPUs under the cache. */
	if (now - nq_read(on->advanced_at) < 1000000 || to > NQ_WORDS)
		return;
	nq_write(on->advanced_at, now);
	if (any)
		ahead = (s64)(first - least);
	nq_for(i, from, to) {
		u32 word = i & (NQ_WORDS - 1);
		u64 cpus = NQ_LLC(q, llc)->cpus[word];

		nq_for(j, 0, 64) {
			struct nq_cpu_state *state;
			s64 his;

			if (!cpus)
				break;
			state = NQ_ON_CPU(q, word * 64 + nq_lowest(cpus));
			cpus &= cpus - 1;
			if (!nq_read(state->running))
				continue;
			his = (s64)(nq_read(state->vtime) - least);
			if (!any || his < ahead)
				ahead = his;
			any = true;
		}
	}
	if (any && ahead > 0)
		nq_write(on->vnow, least + (u64)ahead);
}

/*
 * Puts a task on the clock of a queue, as far ahead or behind as it was. What it is owed is bounded if it has slept or comes from another
 * queue. What it owes is always bounded, because it may have been alone on its CPU.
 */
NQ_FN void nq_rebase(struct nq *q, struct nq_task *t, u32 llc, bool woken)
{
	s64 lag = (s64)(t->vtime - nq_read(NQ_ON_LLC(q, t->clock)->vnow));
	/* Whatever the weights are: no sum of them overflows. */
	s64 owed = (s64)(q->weights.credit & (~0ull >> 2));
	s64 owes = owed + (s64)((2 * q->weights.busy_slice * NQ_WEIGHT / (t->weight ? t->weight : 1)) & (~0ull >> 2));

	if (lag < -owed && (woken || t->clock != llc))
		lag = -owed;
	if (lag > owes)
		lag = owes;
	t->vtime = nq_read(NQ_ON_LLC(q, llc)->vnow) + (u64)lag;
	t->clock = llc;
}

/* Whether a task that has just begun to wait for a CPU should interrupt the one that runs there. */
NQ_FN bool nq_preempts(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	u32 weight = nq_read(on->weight);
	u64 ran = now - nq_read(on->counted_at);

	if (t->follows || !nq_read(on->running) || t->queue != NQ_CPU(q, cpu)->llc || !nq_may_run(t, cpu))
		return false;
	if ((s64)ran < 0)
		ran = 0;
	return (s64)(nq_read(on->vtime) + ran * NQ_WEIGHT / (weight ? weight : 1) - t->vtime) > (s64)q->weights.preempt;
}

/* ---- a task's way ---- */

/* Initialises a new task. Its allowed CPUs and its home are set next. */
NQ_FN void nq_init_task(struct nq *q, struct nq_task *t, u32 weight)
{
	t->weight = weight ? weight : NQ_WEIGHT;
	t->place = NQ_NONE;
	t->cpu = NQ_NONE;
	t->queue = NQ_NONE;
	t->clock = 0;
	t->vtime = nq_read(NQ_ON_LLC(q, 0)->vnow);
}

/* If it was counted as waiting, it no longer is. */
NQ_FN void nq_leave_queue(struct nq *q, struct nq_task *t, u64 now)
{
	u32 llc = t->queue;

	if (llc == NQ_NONE)
		return;
	t->queue = NQ_NONE;
	nq_write(NQ_ON_LLC(q, llc)->served, now);
	if (t->homed)
		__sync_fetch_and_sub(&NQ_WAITING_OF(q, llc, t->home), 1);
	__sync_fetch_and_sub(&NQ_ON_LLC(q, llc)->waiting, 1);
	__sync_fetch_and_sub(&NQ_ON_NODE(q, NQ_LLC(q, llc)->node)->waiting, 1);
}

/*
 * It wants a CPU from now on. A task that waits or runs wants one, even if this was not called. nq_quiescent: it sleeps, and no longer
 * wants one.
 */
NQ_FN void nq_runnable(struct nq *q, struct nq_task *t)
{
	if (!t->wanting && t->homed)
		__sync_fetch_and_add(&NQ_ON_NODE(q, t->home)->wanting, 1);
	t->wanting = t->homed;
}

NQ_FN void nq_quiescent(struct nq *q, struct nq_task *t, u64 now)
{
	nq_leave_queue(q, t, now);
	if (t->wanting)
		__sync_fetch_and_sub(&NQ_ON_NODE(q, t->home)->wanting, 1);
	t->wanting = false;
}

/* It has ended. */
NQ_FN void nq_exit_task(struct nq *q, struct nq_task *t, u64 now)
{
	nq_quiescent(q, t, now);
	if (t->homed)
		__sync_fetch_and_sub(&NQ_ON_NODE(q, t->home)->homes, 1);
	t->homed = false;
}

/*
 * The place of a thread's wake hint among NQ_HINTS, and the hint: the thread's number in the upper half, the CPU in the lower half. Programs
 * write it at any time. Two threads may share a place; then the later hint counts.
 */
#define NQ_HINTS 65536

/*
 * The CPU that stands for the previous one of a task that wakes up: the one that its hint names, unless that is none that the task may use
 * now at its home.
 */
NQ_FN u32 nq_wakes_near(struct nq *q, struct nq_task *t, u32 prev, u32 hinted)
{
	if (hinted >= NQ_CPUS || !nq_is_online(q, hinted) || !nq_may_run(t, hinted) || nq_node_of(q, hinted) != t->home)
		return prev;
	return hinted;
}

/*
 * The CPU for a task that wakes up, or is new: an idle one, claimed, if there is any. At home its previous CPU, then an idle core under the
 * same cache, then one on the node, then any idle CPU of these; then the nearest elsewhere. `event` is set to what that counts as. If no
 * CPU is idle it is NQ_WAITED, and the result only says near which CPU the task will wait: its previous one, or `waker`, whose task is
 * about to sleep (NQ_NONE if there is none).
 */
NQ_LARGE_FN u32 nq_select_cpu(struct nq *q, struct nq_task *t, u32 prev, u32 waker, u32 *event)
{
	u32 home, llc, cpu, i, nodes = q->nodes;
	bool was_home;

	if (!t || !event)
		return prev;
	home = t->home;
	t->follows = false;
	was_home = nq_node_of(q, prev) == home;
	llc = was_home ? NQ_CPU(q, prev)->llc : NQ_NODE(q, home)->llc;
	*event = NQ_WOKE_PREVIOUS;
	if (was_home && nq_may_run(t, prev) && nq_busy(q, prev))
		return prev;
	if (!nq_has_idle(q, t, home))
		goto elsewhere;
	*event = NQ_WOKE_CACHE;
	cpu = nq_claim_llc(q, t, llc, true);
	if (cpu != NQ_NONE)
		return cpu;
	*event = NQ_WOKE_NODE;
	cpu = nq_claim_node(q, t, home, llc, true);
	if (cpu != NQ_NONE)
		return cpu;
	*event = NQ_WOKE_CACHE;
	cpu = nq_claim_llc(q, t, llc, false);
	if (cpu != NQ_NONE)
		return cpu;
	*event = NQ_WOKE_NODE;
	cpu = nq_claim_node(q, t, home, llc, false);
	if (cpu != NQ_NONE)
		return cpu;
elsewhere:
	*event = NQ_WOKE_AWAY;
	if (nodes < 2)
		goto nowhere;
	nq_for(i, 1, nodes) {
		u32 node = NQ_NODE(q, home)->near[i & (NQ_NODES - 1)];

		if (!nq_has_idle(q, t, node))
			continue;
		cpu = nq_claim_node(q, t, node, NQ_NODE(q, node)->llc, false);
		if (cpu != NQ_NONE)
			return cpu;
	}
nowhere:
	*event = NQ_WAITED;
	if (waker == NQ_NONE || nq_node_of(q, waker) != home || !nq_may_run(t, waker))
		return prev;
	t->follows = true;
	return waker;
}

/* The first online CPU that the task may use, of a node or, for NQ_NONE, of all. */
NQ_LARGE_FN u32 nq_any_cpu(struct nq *q, struct nq_task *t, u32 node)
{
	u32 i;

	if (!t)
		return NQ_NONE;
	nq_for(i, 0, NQ_WORDS) {
		u32 word = i & (NQ_WORDS - 1);
		u64 cpus = t->allowed[word] & nq_read(q->online[word]);

		if (node != NQ_NONE)
			cpus &= NQ_NODE(q, node)->cpus[word];
		if (cpus)
			return word * 64 + nq_lowest(cpus);
	}
	return NQ_NONE;
}

/* Whether a stray should wait at home rather than where it was: a CPU is idle there, or home is no more crowded than here. */
NQ_FN bool nq_home_has_room(struct nq *q, struct nq_task *t, u32 here)
{
	return nq_has_idle(q, t, t->home) || nq_node_crowd(q, t->home) <= nq_node_crowd(q, here);
}

/* Whether a task should leave its CPU although no other task needs it: it may no longer run there, or there is room at home. */
NQ_FN bool nq_leaves(struct nq *q, struct nq_task *t, u32 cpu)
{
	u32 node = nq_node_of(q, cpu);

	return !nq_may_run(t, cpu) || (node != t->home && nq_home_has_room(q, t, node));
}

/*
 * The queue in which a task waits from now on; it is counted there. That is at home, under the cache where it last ran if that is there. A
 * stray that has just run stays where it is while there is no room at home.
 */
NQ_LARGE_FN u32 nq_enqueue(struct nq *q, struct nq_task *t, u32 cpu, bool woken, u64 now)
{
	u32 llc, node;

	if (!t)
		return 0;
	nq_runnable(q, t);
	nq_leave_queue(q, t, now);
	node = nq_node_of(q, cpu);
	llc = NQ_CPU(q, cpu)->llc;
	/* A task that has not run since it got its home begins there. */
	if ((node != t->home && (woken || t->place == NQ_NONE)) || nq_leaves(q, t, cpu)) {
		/* A CPU that it may use at home, or anywhere. */
		u32 other = nq_any_cpu(q, t, t->home);

		if (other == NQ_NONE && !nq_may_run(t, cpu))
			other = nq_any_cpu(q, t, NQ_NONE);
		if (other != NQ_NONE) {
			llc = NQ_CPU(q, other)->llc;
			node = nq_node_of(q, other);
		}
	}
	nq_rebase(q, t, llc, woken);
	t->queue = llc;
	t->waits_at = now;
	if (!__sync_fetch_and_add(&NQ_ON_LLC(q, llc)->waiting, 1)) {
		nq_write(NQ_ON_LLC(q, llc)->since, now);
		nq_write(NQ_ON_LLC(q, llc)->served, now);
	}
	if (t->homed)
		__sync_fetch_and_add(&NQ_WAITING_OF(q, llc, t->home), 1);
	__sync_fetch_and_add(&NQ_ON_NODE(q, node)->waiting, 1);
	return llc;
}

/* For how long tasks must have waited in a queue before an idle CPU of another node takes one. */
NQ_FN u64 nq_steal_delay(struct nq *q, u32 from, u32 to)
{
	return q->weights.steal_delay * nq_steps(nq_distance(q, from, to));
}

/* Whether an idle CPU of node `to` may take from a queue. */
NQ_FN bool nq_may_steal(struct nq *q, u32 llc, u32 to, u64 now)
{
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);
	u64 since = nq_read(on->since);

	return nq_read(on->waiting) && (s64)(now - since) >= (s64)nq_steal_delay(q, NQ_LLC(q, llc)->node, to);
}

/*
 * Claims the idle CPU that must be woken for a task that waits in a queue: one under that cache, of its node, of the task's home, or one of
 * another node that may take it.
 */
NQ_LARGE_FN u32 nq_wake(struct nq *q, struct nq_task *t, u32 llc, u64 now)
{
	u32 node = NQ_LLC(q, llc)->node, cpu, i, nodes = q->nodes;

	if (!t)
		return NQ_NONE;
	nq_barrier();
	if (nq_has_idle(q, t, node)) {
		cpu = nq_claim_node(q, t, node, llc, false);
		if (cpu != NQ_NONE)
			return cpu;
	}
	if (t->home != node) {
		cpu = nq_claim_node(q, t, t->home, NQ_NODE(q, t->home)->llc, false);
		if (cpu != NQ_NONE)
			return cpu;
	}
	if (nodes < 2)
		return NQ_NONE;
	nq_for(i, 1, nodes) {
		u32 other = NQ_NODE(q, node)->near[i & (NQ_NODES - 1)];

		/* A task that is away may as well be on any other node. */
		if (t->home == node && !nq_may_steal(q, llc, other, now))
			break;
		if (!nq_has_idle(q, t, other))
			continue;
		cpu = nq_claim_node(q, t, other, NQ_NODE(q, other)->llc, false);
		if (cpu != NQ_NONE)
			return cpu;
	}
	return NQ_NONE;
}

/*
 * The CPU that must be interrupted for a task that came back home, or has not run since it got its home, and waits there now, if nq_wake
 * has found no idle CPU: one of its home that runs a stray.
 */
NQ_LARGE_FN u32 nq_displaces(struct nq *q, struct nq_task *t, u32 llc)
{
	u32 node = NQ_LLC(q, llc)->node, from, to, i;

	if (!t || t->home != node || t->place == node || !nq_read(NQ_ON_NODE(q, node)->strays))
		return NQ_NONE;
	from = NQ_NODE(q, node)->from * 64;
	to = NQ_NODE(q, node)->to * 64;
	if (to > NQ_CPUS)
		return NQ_NONE;
	nq_for(i, from, to) {
		if (!(NQ_NODE(q, node)->cpus[NQ_WORD(i)] & t->allowed[NQ_WORD(i)] & NQ_BIT(i)))
			continue;
		if (nq_read(NQ_ON_CPU(q, i)->running) && nq_read(NQ_ON_CPU(q, i)->home) != node)
			return i;
	}
	return NQ_NONE;
}

/* It runs on a CPU from now on. Returns the length of its slice. */
NQ_LARGE_FN u64 nq_running(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	u32 llc = NQ_CPU(q, cpu)->llc, node = nq_node_of(q, cpu);
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	bool from_home, at_home, waited;

	if (!t)
		return q->weights.slice;
	at_home = node == t->home;
	waited = t->queue != NQ_NONE;
	nq_runnable(q, t);
	nq_leave_queue(q, t, now);
	nq_busy(q, cpu);
	/* A task that went to an idle CPU at once was in no queue: it has slept. */
	if (t->clock != llc || !waited)
		nq_rebase(q, t, llc, !waited);
	nq_write(on->vtime, t->vtime);
	nq_write(on->counted_at, now);
	nq_write(on->weight, t->weight);
	t->began_at = now;
	t->ran_at = now;
	t->cpu = cpu;
	if (t->place != node) {
		from_home = t->place == NQ_NONE || t->place == t->home;
		if (t->place != NQ_NONE) {
			t->crossings++;
			nq_count(q, cpu, NQ_CROSSED);
		}
		if (!at_home && from_home) {
			nq_count(q, cpu, NQ_LEFT);
			if (t->place != NQ_NONE && now - t->returned_at < 1000000000ULL)
				t->swings += t->swings < 3;
			else
				t->swings = 0;
			t->left_at = now;
		} else if (at_home && !from_home) {
			nq_count(q, cpu, NQ_RETURNED);
			t->returned_at = now;
		}
		t->place = node;
	}
	if (!t->running) {
		nq_runs_on(q, t, node, true);
		__sync_fetch_and_add(&NQ_ON_LLC(q, llc)->running, 1);
		__sync_fetch_and_add(&NQ_ON_NODE(q, node)->running, 1);
	}
	nq_write(on->home, t->home);
	nq_write(on->running, 1);
	return nq_read(NQ_ON_LLC(q, llc)->waiting) ? q->weights.busy_slice : q->weights.slice;
}

/* It has used a CPU up to now. */
NQ_FN void nq_charge(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	u64 ran = now - t->ran_at;

	if ((s64)ran <= 0)
		return;
	t->ran_at = now;
	t->vtime += ran * NQ_WEIGHT / (t->weight ? t->weight : 1);
	nq_write(NQ_ON_CPU(q, cpu)->vtime, t->vtime);
	nq_write(NQ_ON_CPU(q, cpu)->counted_at, now);
	if (nq_node_of(q, cpu) == t->home) {
		t->home_ns += ran;
		NQ_ON_CPU(q, cpu)->home_ns += ran;
	} else {
		t->away_ns += ran;
		NQ_ON_CPU(q, cpu)->away_ns += ran;
	}
}

/* It no longer runs. */
NQ_LARGE_FN void nq_stopping(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	if (!t)
		return;
	nq_charge(q, t, cpu, now);
	if (t->running) {
		nq_runs_on(q, t, nq_node_of(q, cpu), false);
		__sync_fetch_and_sub(&NQ_ON_LLC(q, NQ_CPU(q, cpu)->llc)->running, 1);
		__sync_fetch_and_sub(&NQ_ON_NODE(q, nq_node_of(q, cpu))->running, 1);
	}
	nq_write(NQ_ON_CPU(q, cpu)->running, 0);
	nq_write(NQ_ON_CPU(q, cpu)->home, NQ_NONE);
}

/* ---- what a CPU takes ---- */

enum nq_take {
	/* Nothing is left to be tried. */
	NQ_TAKE_NOTHING,
	/* The first of the queue that may run on this CPU. */
	NQ_TAKE_FIRST,
	/* The first of the queue that is of the group at which the search is, and that the CPU may take: see nq_is_in_group. */
	NQ_TAKE_BY_HOME,
	/* The first of the queue that may run on this CPU, if its virtual time is earlier than that of the task that stays. */
	NQ_TAKE_EARLIER,
	/* The last of the queue that may run on this CPU, if it has waited too long: see nq_is_old. */
	NQ_TAKE_OLD,
};

/* The tasks of another node's queue, in the order in which a CPU takes them: see the top. */
enum nq_group {
	/* The search is about to begin with the queue. */
	NQ_GROUP_NONE,
	NQ_GROUP_OWN,
	NQ_GROUP_STRAYS,
	NQ_GROUP_NATIVES,
};

enum nq_step {
	NQ_STEP_OLD,
	NQ_STEP_RESCUE,
	NQ_STEP_RELIEF,
	NQ_STEP_CACHE,
	NQ_STEP_NODE,
	NQ_STEP_ELSEWHERE,
};

/*
 * A CPU searches a task to run: nq_next names the queue to try next, and which task of it to take, until the CPU has got one or nothing is
 * left. `stays` says that the task that ran here can go on: then tasks of other nodes are taken only for relief.
 */
NQ_FN void nq_begin(struct nq *q, u32 cpu)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	u32 i;

	on->step = NQ_STEP_OLD;
	on->at = 0;
	on->group = NQ_GROUP_NATIVES;
	nq_for(i, 0, NQ_LLCS / 64)
		on->tried[i & (NQ_LLCS / 64 - 1)] = 0;
}

/* The most queues, and groups of their tasks, that a search tries. */
#define NQ_MOST_TRIES (4 * NQ_LLCS)

/* Whether a task that waits is taken before its turn. */
NQ_FN bool nq_is_old(struct nq_task *t, u64 now)
{
	return (s64)(now - t->waits_at) >= (s64)NQ_OLD;
}

/*
 * Whether an idle CPU of another node may take a waiting native. Like nq_may_steal, but by how long the task itself has waited, because it
 * may have come a moment ago to a queue where another task waits for one particular CPU.
 */
NQ_FN bool nq_has_waited(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	u32 from = NQ_LLC(q, t->queue)->node;

	return (s64)(now - t->waits_at) >= (s64)nq_steal_delay(q, from, nq_node_of(q, cpu));
}

/* Whether a waiting task is of the group at which the search of a CPU of another node is, and may be taken. */
NQ_FN bool nq_is_in_group(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	bool own = t->home == nq_node_of(q, cpu), native = t->home == NQ_LLC(q, t->queue)->node;

	if (on->group == NQ_GROUP_OWN)
		return own;
	if (on->group == NQ_GROUP_STRAYS)
		return !own && !native;
	return native && (on->event == NQ_TOOK_RELIEF || nq_has_waited(q, t, cpu, now));
}

/*
 * Whether a task of a queue is one that nq_next said the CPU should take: one of enum nq_take. NQ_TAKE_CHECKS tasks of a queue are checked,
 * from its beginning, or from its end for NQ_TAKE_OLD.
 */
#define NQ_TAKE_CHECKS 32

NQ_FN bool nq_fits(struct nq *q, struct nq_task *t, u32 cpu, enum nq_take what, u64 now)
{
	if (!nq_may_run(t, cpu))
		return false;
	if (what == NQ_TAKE_BY_HOME)
		return nq_is_in_group(q, t, cpu, now);
	if (what == NQ_TAKE_EARLIER)
		return (s64)(t->vtime - nq_read(NQ_ON_CPU(q, cpu)->vtime)) < 0;
	if (what == NQ_TAKE_OLD)
		return nq_is_old(t, now);
	return true;
}

/* ---- queues of other nodes ---- */

/*
 * Tasks for each CPU of a place, in thousandths, as a CPU of another node sees it: `own` of those that wait there are at home on its node,
 * and count more. All choices between places on other nodes compare these (nq_relief, nq_next_elsewhere).
 */
NQ_FN u64 nq_seen_crowd(struct nq *q, u64 milli, u32 own, u32 capacity)
{
	return nq_crowd(milli + q->weights.own_bonus * own, capacity);
}

/* The same of a queue, for a CPU of node `to`. */
NQ_FN u64 nq_llc_seen_crowd(struct nq *q, u32 llc, u32 to)
{
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);
	u64 milli = 1000ULL * (nq_read(on->waiting) + nq_read(on->running));

	return nq_seen_crowd(q, milli, nq_read(NQ_WAITING_OF(q, llc, to)), nq_read(on->capacity));
}

/* The same of a node, whose load is smoothed. */
NQ_GLOBAL_FN u64 nq_node_seen_crowd(struct nq *q, u32 node, u32 to)
{
	struct nq_node_state *on;
	u32 llcs, base, own = 0, i;

	if (!q)
		return 0;
	on = NQ_ON_NODE(q, node);
	llcs = NQ_NODE(q, node)->llcs;
	base = NQ_NODE(q, node)->llc;
	if (q->weights.own_bonus) {
		nq_for(i, 0, llcs)
			own += nq_read(NQ_WAITING_OF(q, base + i, to));
	}
	return nq_seen_crowd(q, nq_read(on->load), own, nq_read(on->capacity));
}

/*
 * Whether strays wait in a queue, for a CPU of node `to`. A sum and a difference of counts would be wrong while tasks come and go: an idle
 * CPU would miss a stray.
 */
NQ_GLOBAL_FN bool nq_has_strays(struct nq *q, u32 llc, u32 to)
{
	u32 from, nodes, home;

	if (!q)
		return false;
	from = NQ_LLC(q, llc)->node;
	nodes = q->nodes;
	nq_for(home, 0, nodes) {
		if (home != from && home != to && nq_read(NQ_WAITING_OF(q, llc, home)))
			return true;
	}
	return false;
}

/* Whether an idle CPU of node `to` may take from a queue of another node: an own task, a stray, or one that has waited long enough. */
NQ_FN bool nq_offers(struct nq *q, u32 llc, u32 to, u64 now)
{
	if (!nq_read(NQ_ON_LLC(q, llc)->waiting))
		return false;
	return nq_read(NQ_WAITING_OF(q, llc, to)) || nq_has_strays(q, llc, to) || nq_may_steal(q, llc, to, now);
}

/* The queue of a node that is most crowded as a CPU of node `to` sees it, of those where tasks wait. */
NQ_GLOBAL_FN u32 nq_most_crowded_queue(struct nq *q, u32 node, u32 to)
{
	u32 llcs, base, best = NQ_NONE, i;
	u64 most = 0;

	if (!q)
		return NQ_NONE;
	llcs = NQ_NODE(q, node)->llcs;
	base = NQ_NODE(q, node)->llc;
	nq_for(i, 0, llcs) {
		u32 llc = base + i;
		u64 crowd = nq_llc_seen_crowd(q, llc, to);

		if (nq_read(NQ_ON_LLC(q, llc)->waiting) && crowd > most) {
			best = llc;
			most = crowd;
		}
	}
	return best;
}

/* The most crowded queue that a busy CPU relieves, or NQ_NONE: under a cache of its node, or on another node. */
NQ_GLOBAL_FN u32 nq_relief(struct nq *q, u32 cpu, u64 now)
{
	struct nq_cpu_state *on;
	u32 node, own, llcs, base, nodes, best = NQ_NONE, i;
	u64 here, most = 0;

	if (!q)
		return NQ_NONE;
	on = NQ_ON_CPU(q, cpu);
	node = nq_node_of(q, cpu);
	own = NQ_CPU(q, cpu)->llc;
	llcs = NQ_NODE(q, node)->llcs;
	base = NQ_NODE(q, node)->llc;
	nodes = q->nodes;
	if (now - on->relief_at < q->weights.relief_interval)
		return NQ_NONE;
	on->relief_at = now;
	here = nq_llc_crowd(q, own);
	nq_for(i, 0, llcs) {
		u32 llc = base + i;
		u64 crowd = nq_llc_crowd(q, llc);

		if (llc == own || !nq_read(NQ_ON_LLC(q, llc)->waiting) || crowd <= most)
			continue;
		if (nq_out_of_balance(q, crowd, here, NQ_LOCAL)) {
			best = llc;
			most = crowd;
		}
	}
	if (best != NQ_NONE)
		return best;
	here = nq_node_crowd(q, node);
	most = 0;
	nq_for(i, 1, nodes) {
		u32 other = NQ_NODE(q, node)->near[i & (NQ_NODES - 1)];
		u64 crowd;

		if (!nq_read(NQ_ON_NODE(q, other)->waiting))
			continue;
		crowd = nq_node_seen_crowd(q, other, node);
		if (crowd > most && nq_out_of_balance(q, crowd, here, nq_distance(q, node, other))) {
			best = other;
			most = crowd;
		}
	}
	return best == NQ_NONE ? NQ_NONE : nq_most_crowded_queue(q, best, node);
}

/* The next queue of another node from which an idle CPU may take, of those where the search has not been; NQ_NONE at the end. */
NQ_GLOBAL_FN u32 nq_next_elsewhere(struct nq *q, u32 cpu, u64 now)
{
	struct nq_cpu_state *on;
	u32 node, nodes, best = NQ_NONE, i, j;
	u64 most = 0;

	if (!q)
		return NQ_NONE;
	on = NQ_ON_CPU(q, cpu);
	node = nq_node_of(q, cpu);
	nodes = q->nodes;
	nq_for(i, 1, nodes) {
		u32 other = NQ_NODE(q, node)->near[i & (NQ_NODES - 1)];
		u32 llcs = NQ_NODE(q, other)->llcs, base = NQ_NODE(q, other)->llc;

		if (!nq_read(NQ_ON_NODE(q, other)->waiting))
			continue;
		nq_for(j, 0, llcs) {
			u32 llc = base + j;
			u64 rank;

			if ((on->tried[(llc / 64) & (NQ_LLCS / 64 - 1)] & NQ_BIT(llc)) || !nq_offers(q, llc, node, now))
				continue;
			rank = q->weights.own_bonus ? nq_llc_seen_crowd(q, llc, node) : nq_read(NQ_WAITING_OF(q, llc, node)) != 0;
			/* Of equal ones the nearest. */
			if (best == NQ_NONE || rank > most) {
				best = llc;
				most = rank;
			}
		}
	}
	if (best != NQ_NONE)
		on->tried[(best / 64) & (NQ_LLCS / 64 - 1)] |= NQ_BIT(best);
	return best;
}

/* A step has found a queue. */
NQ_FN enum nq_take nq_found(struct nq_cpu_state *on, u32 llc, u32 event, enum nq_take take)
{
	on->queue = llc;
	on->event = event;
	return take;
}

/*
 * The next group to try of the queue where the search is; NQ_TAKE_NOTHING if all were tried. Groups of which no task is counted are left
 * out. A busy CPU that relieves the queue takes natives without the delay.
 */
NQ_FN enum nq_take nq_next_group(struct nq *q, u32 cpu, u64 now)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	u32 node = nq_node_of(q, cpu), llc = on->queue, event = on->step == NQ_STEP_ELSEWHERE ? NQ_TOOK_IDLE : NQ_TOOK_RELIEF;

	if (on->group == NQ_GROUP_NONE) {
		on->group = NQ_GROUP_OWN;
		if (nq_read(NQ_WAITING_OF(q, llc, node)))
			return nq_found(on, llc, NQ_TOOK_OWN, NQ_TAKE_BY_HOME);
	}
	if (on->group == NQ_GROUP_OWN) {
		on->group = NQ_GROUP_STRAYS;
		if (nq_has_strays(q, llc, node))
			return nq_found(on, llc, event, NQ_TAKE_BY_HOME);
	}
	if (on->group == NQ_GROUP_STRAYS) {
		on->group = NQ_GROUP_NATIVES;
		if (nq_read(NQ_WAITING_OF(q, llc, NQ_LLC(q, llc)->node)) && (event == NQ_TOOK_RELIEF || nq_may_steal(q, llc, node, now)))
			return nq_found(on, llc, event, NQ_TAKE_BY_HOME);
	}
	return NQ_TAKE_NOTHING;
}

/* What to try next (see nq_begin): the queue and what it counts as are in the CPU's state. */
NQ_LARGE_FN enum nq_take nq_next(struct nq *q, u32 cpu, bool stays, u64 now)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);
	u32 node = nq_node_of(q, cpu), own = NQ_CPU(q, cpu)->llc, llc, i;
	enum nq_take take = nq_next_group(q, cpu, now);

	if (take != NQ_TAKE_NOTHING)
		return take;
	if (on->step == NQ_STEP_OLD) {
		u32 time = (u32)(now / 1000000);

		on->step = NQ_STEP_RESCUE;
		if (time - on->aged_at >= NQ_AGE && nq_read(NQ_ON_LLC(q, own)->waiting)) {
			on->aged_at = time;
			return nq_found(on, own, NQ_TOOK_RESCUE, NQ_TAKE_OLD);
		}
	}
	if (on->step == NQ_STEP_RESCUE) {
		on->step = NQ_STEP_RELIEF;
		llc = nq_read(q->starving);
		if (llc != NQ_NONE) {
			nq_write(q->starving, NQ_NONE);
			return nq_found(on, llc, NQ_TOOK_RESCUE, NQ_TAKE_FIRST);
		}
	}
	if (on->step == NQ_STEP_RELIEF) {
		on->step = NQ_STEP_CACHE;
		llc = nq_relief(q, cpu, now);
		if (llc != NQ_NONE && (NQ_LLC(q, llc)->node == node || !q->weights.own_bonus))
			return nq_found(on, llc, NQ_TOOK_RELIEF, NQ_TAKE_FIRST);
		if (llc != NQ_NONE) {
			on->queue = llc;
			on->group = NQ_GROUP_NONE;
			take = nq_next_group(q, cpu, now);
			if (take != NQ_TAKE_NOTHING)
				return take;
		}
	}
	if (on->step == NQ_STEP_CACHE) {
		on->step = NQ_STEP_NODE;
		on->at = 0;
		/* The task that stays is in no queue: without NQ_TAKE_EARLIER two tasks of different weights would alternate. */
		if (nq_read(NQ_ON_LLC(q, own)->waiting)) {
			/* The queue counts as served, even if the task that stays is the one that is owed the CPU. */
			nq_write(NQ_ON_LLC(q, own)->served, now);
			return nq_found(on, own, NQ_TOOK_CACHE, stays ? NQ_TAKE_EARLIER : NQ_TAKE_FIRST);
		}
	}
	if (on->step == NQ_STEP_NODE) {
		u32 llcs = NQ_NODE(q, node)->llcs, base = NQ_NODE(q, node)->llc;

		nq_for(i, 0, llcs) {
			if (stays || on->at >= llcs)
				break;
			llc = base + on->at++;
			if (llc != own && nq_read(NQ_ON_LLC(q, llc)->waiting))
				return nq_found(on, llc, NQ_TOOK_NODE, NQ_TAKE_FIRST);
		}
		on->step = NQ_STEP_ELSEWHERE;
	}
	/* The counts may have changed since nq_offers, so a queue may have no group left to try. */
	nq_for(i, 0, NQ_LLCS) {
		llc = stays ? NQ_NONE : nq_next_elsewhere(q, cpu, now);
		if (llc == NQ_NONE)
			break;
		on->queue = llc;
		on->group = NQ_GROUP_NONE;
		take = nq_next_group(q, cpu, now);
		if (take != NQ_TAKE_NOTHING)
			return take;
	}
	return NQ_TAKE_NOTHING;
}

/* Whether a task waits that an idle CPU would take at once: checked after nq_idle. */
NQ_LARGE_FN bool nq_has_work(struct nq *q, u32 cpu, u64 now)
{
	u32 node = nq_node_of(q, cpu), llcs = q->llcs, i;

	nq_barrier();
	if (nq_read(NQ_ON_NODE(q, node)->waiting))
		return true;
	if (q->nodes < 2)
		return false;
	nq_for(i, 0, llcs) {
		if (nq_offers(q, i, node, now))
			return true;
	}
	return false;
}

/*
 * This many checks last a tenth of a millisecond: longer than a CPU takes to put a task into a queue, unless that CPU does not run at the
 * moment, as in a virtual machine. Then it would be wrong to use more of the time that it waits for.
 */
#define NQ_RECHECKS 32

/*
 * A CPU that is about to be idle has found nothing, and in the queue `llc` there are fewer tasks than are counted. Most likely a task is on
 * its way there, from a CPU that had searched for idle ones before this one was: no other CPU would wake this one for it. Returns whether
 * this CPU must check again at once. If not, the next CPU that searches for a task takes that one; most often this is the CPU that sent it.
 */
NQ_FN bool nq_checks_again(struct nq *q, u32 cpu, u32 llc)
{
	struct nq_cpu_state *on = NQ_ON_CPU(q, cpu);

	if (llc != NQ_NONE && ++on->rechecks < NQ_RECHECKS)
		return true;
	on->rechecks = 0;
	if (llc != NQ_NONE)
		nq_write(q->starving, llc);
	return false;
}

/*
 * Whether a stray is sent home: a CPU is idle there, or runs a stray itself, which makes room. Without the latter, strays on each other's
 * nodes would stay there while all CPUs are busy.
 */
NQ_FN bool nq_may_return(struct nq *q, struct nq_task *t, u32 here)
{
	return nq_has_idle(q, t, t->home) || (nq_read(NQ_ON_NODE(q, t->home)->strays) && nq_is_open(q, t, t->home) && nq_node_crowd(q, t->home) <= nq_node_crowd(q, here));
}

/*
 * Claims an idle CPU to take from this queue, whichever tasks wait there: one of its node, or of another node that may take. If none of the
 * waiting tasks may run there, that CPU is idle again at once: so each CPU is woken in its turn.
 */
NQ_LARGE_FN u32 nq_tick_wakes(struct nq *q, u32 llc, u64 now)
{
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);
	u32 node = NQ_LLC(q, llc)->node, nodes = q->nodes, after = nq_read(on->woke), round, i, j;

	/* First the CPUs after the last one that was woken, by node and number, then all. */
	nq_for(round, 0, 2) {
		bool passed = round || after == NQ_NONE;

		nq_for(i, 0, nodes) {
			u32 other = NQ_NODE(q, node)->near[i & (NQ_NODES - 1)];
			u32 from = NQ_NODE(q, other)->from, to = NQ_NODE(q, other)->to;

			if (to > NQ_WORDS || !nq_may_steal(q, llc, other, now))
				break;
			if (!passed && nq_node_of(q, after) != other)
				continue;
			nq_for(j, from, to) {
				u32 word = j & (NQ_WORDS - 1), cpu;
				u64 idle = NQ_NODE(q, other)->cpus[word] & nq_read(q->idle[word]);

				if (!passed && NQ_WORD(after) > word)
					continue;
				if (!passed && NQ_WORD(after) == word)
					idle &= ~(NQ_BIT(after) | (NQ_BIT(after) - 1));
				if (!idle)
					continue;
				cpu = word * 64 + nq_lowest(idle);
				if (nq_busy(q, cpu)) {
					nq_write(on->woke, cpu);
					return cpu;
				}
			}
			passed = true;
		}
	}
	return NQ_NONE;
}

/*
 * Called every few milliseconds, on each CPU that runs a task. Returns whether that task must make room: other tasks wait and it has had
 * its part, or it is a stray that can go home. The idle CPU that must be woken for tasks that wait here is left in the CPU's state. In that
 * case the task goes on for another tick or two, because two tasks that took turns on a CPU would never wait long enough to be taken.
 */
NQ_LARGE_FN bool nq_tick(struct nq *q, struct nq_task *t, u32 cpu, u64 now)
{
	u32 node = nq_node_of(q, cpu), llc = NQ_CPU(q, cpu)->llc, checked, idle = NQ_NONE;
	struct nq_llc_state *on = NQ_ON_LLC(q, llc);
	bool yields = false;
	u64 ran;

	NQ_ON_CPU(q, cpu)->wakes = NQ_NONE;
	if (!t)
		return false;
	nq_charge(q, t, cpu, now);
	nq_smooth(q, node, now);
	ran = now - t->began_at;
	if (nq_read(on->waiting)) {
		idle = nq_tick_wakes(q, llc, now);
		NQ_ON_CPU(q, cpu)->wakes = idle;
		yields = ran >= q->weights.busy_slice && (idle == NQ_NONE || ran >= 4 * q->weights.busy_slice);
	}
	if (node != t->home && now - t->left_at >= q->weights.stay << (t->swings & 3) && nq_may_return(q, t, node)) {
		nq_count(q, cpu, NQ_SENT);
		yields = true;
	}
	/*
	 * Each tick checks one queue for whether a CPU serves it, and updates the load of its node: an idle node has no ticks of its own.
	 */
	checked = q->last_checked + 1;
	if (checked >= q->llcs)
		checked = 0;
	q->last_checked = checked;
	nq_smooth(q, NQ_LLC(q, checked)->node, now);
	on = NQ_ON_LLC(q, checked);
	if (nq_read(on->waiting) && (s64)(now - nq_read(on->served)) >= (s64)q->weights.rescue) {
		nq_write(on->served, now);
		nq_write(q->starving, checked);
	}
	return yields;
}

/* A CPU comes or goes: the capacity of its cache and its node changes. */
NQ_FN void nq_online(struct nq *q, u32 cpu, bool online)
{
	u32 capacity = NQ_CPU(q, cpu)->capacity;
	u64 was;

	if (online)
		was = __sync_fetch_and_or(&q->online[NQ_WORD(cpu)], NQ_BIT(cpu)) & NQ_BIT(cpu);
	else
		was = !(__sync_fetch_and_and(&q->online[NQ_WORD(cpu)], ~NQ_BIT(cpu)) & NQ_BIT(cpu));
	if (was)
		return;
	if (online) {
		__sync_fetch_and_add(&NQ_ON_LLC(q, NQ_CPU(q, cpu)->llc)->capacity, capacity);
		__sync_fetch_and_add(&NQ_ON_NODE(q, nq_node_of(q, cpu))->capacity, capacity);
	} else {
		nq_busy(q, cpu);
		__sync_fetch_and_sub(&NQ_ON_LLC(q, NQ_CPU(q, cpu)->llc)->capacity, capacity);
		__sync_fetch_and_sub(&NQ_ON_NODE(q, nq_node_of(q, cpu))->capacity, capacity);
	}
}

#endif /* NEARQ_POLICY_H */
