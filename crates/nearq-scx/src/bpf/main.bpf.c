// SPDX-License-Identifier: GPL-2.0
/*
 * The node affine scheduler as the kernel runs it: hooks that tell the policy what happens and do what it says.
 *
 * There is a queue for each last-level cache, numbered as the policy numbers them, ordered by virtual time. A task that finds an idle
 * CPU when it wakes up goes there at once; all others wait in one of the queues, but for the kernel's own threads of one CPU, which are not
 * the policy's business.
 *
 * A task that is alone on its CPU has a long slice, and ticks look whether others wait or whether it should go home. When its slice was
 * ended and nobody else is there, it gets a new one and goes on, unless it is meant to go home: then it is enqueued all the same
 * (SCX_OPS_ENQ_LAST).
 *
 * A CPU that is going offline, or is not online yet, needs care:
 * - What it asks other CPUs for by a kick is irq work of its own. What is asked for too late is never done, and nothing after it on that CPU,
 *   even when it is online again, as the list is not empty then and no interrupt is sent. So it kicks nobody (see `kick`).
 * - For it the kernel does not call `enqueue`, also for SCX_ENQ_LAST: a task alone there whose slice ends would wait while the CPU is idle. It would be the thread that
 *   takes the CPU offline or brings it online, most often. So the kernel's own threads of one CPU have slices that do not end by themselves.
 */
#include "kernel.h"

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include <bpf/bpf_tracing.h>

#define nq_for(i, from, to) bpf_for(i, from, to)
/* A read-modify-write whose result is used orders all that is before and after it. */
#define nq_barrier()                                              \
	({                                                        \
		u64 word = 0;                                     \
		u64 was = __sync_fetch_and_or(&word, 1);          \
		asm volatile("" : : "r"(was) : "memory");         \
	})
#include "policy.h"

char _license[] SEC("license") = "GPL";

/* The machine and all that is known of it. Filled in before the program is loaded; user space reads it while it runs. */
struct nq nq;

/* Why the kernel has let go of the scheduler. */
struct {
	s64 code;
	s32 kind;
	u32 unused;
	char reason[128];
	char message[1024];
} exit_info;

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct nq_task);
} tasks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct nq_process);
} processes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, u32);
	__type(value, struct nq_told);
} told SEC(".maps");

/* What is known of a process at first: too large for the stack. */
const struct nq_process no_process = {};

/*
 * The processes that have used a CPU since user space looked last, so that it need not go through all. In rounds: one list is written while
 * the other is read. User space alone changes `round`, empties the next list before, and reads the last one after. Who writes while the
 * round changes may miss it: then a process is in neither list, and in the next one if it goes on.
 */
#define RAN 4096
struct ran_list {
	/* How many there would be, if there were room. */
	u32 count;
	u32 pids[RAN];
};
struct {
	u32 round;
	/* As user space reads all of this memory at once, its length must be a multiple of eight. */
	u32 unused;
	struct ran_list list[2];
} ran;

/* One of so many wake-ups looks whether a home was told; ticks look too. */
#define WAKES 16

/* ---- names that have changed ---- */

static __always_inline void insert(struct task_struct *p, u64 dsq, u64 slice, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert))
		scx_bpf_dsq_insert(p, dsq, slice, flags);
	else
		scx_bpf_dispatch(p, dsq, slice, flags);
}

static __always_inline void insert_vtime(struct task_struct *p, u64 dsq, u64 slice, u64 vtime, u64 flags)
{
	if (bpf_ksym_exists(scx_bpf_dsq_insert_vtime))
		scx_bpf_dsq_insert_vtime(p, dsq, slice, vtime, flags);
	else
		scx_bpf_dispatch_vtime(p, dsq, slice, vtime, flags);
}

static __always_inline bool move_to_local(u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move_to_local))
		return scx_bpf_dsq_move_to_local(dsq);
	return scx_bpf_consume(dsq);
}

static __always_inline bool move(struct bpf_iter_scx_dsq *it, struct task_struct *p, u64 dsq)
{
	if (bpf_ksym_exists(scx_bpf_dsq_move))
		return scx_bpf_dsq_move(it, p, dsq, 0);
	return scx_bpf_dispatch_from_dsq(it, p, dsq, 0);
}

static __always_inline void set_slice(struct task_struct *p, u64 slice)
{
	if (bpf_ksym_exists(scx_bpf_task_set_slice))
		scx_bpf_task_set_slice(p, slice);
	else
		p->scx.slice = slice;
}

/* Nanoseconds; of another CPU's clock they may differ a little. The kernel may have looked at it already. */
static __always_inline u64 time_now(void)
{
	if (bpf_ksym_exists(scx_bpf_now))
		return scx_bpf_now();
	return bpf_ktime_get_ns();
}

/* Makes a CPU look for tasks, but from one that is going offline. */
static __always_inline void kick(u32 cpu, u64 flags)
{
	if (nq_is_online(&nq, bpf_get_smp_processor_id()))
		scx_bpf_kick_cpu(cpu, flags);
}

/* A thread of the kernel's own that belongs to its CPU: there is nothing to decide. */
static __always_inline bool belongs_to_cpu(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* A slice that a tick ends. */
#define ENDLESS 10000000000ULL

/* ---- homes ---- */

static __always_inline struct nq_task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* Sets a task's home and keeps its process's account of its threads. */
static __noinline void settle(struct nq_task *t, struct nq_process *process, u32 home, u32 why)
{
	if (!t)
		return;
	if (process && t->homed)
		__sync_fetch_and_sub(&process->at_home[t->home & (NQ_NODES - 1)], 1);
	if (process)
		__sync_fetch_and_add(&process->at_home[home & (NQ_NODES - 1)], 1);
	nq_set_home(&nq, t, home & (NQ_NODES - 1), why);
}

/* What is told of a thread: by its own number, or else by its process's. */
static __always_inline struct nq_told *said_of(u32 pid, u32 tgid)
{
	struct nq_told *said = bpf_map_lookup_elem(&told, &pid);

	if (!said && pid != tgid)
		said = bpf_map_lookup_elem(&told, &tgid);
	return said;
}

/* Whether user space has said where the task is at home; then it is from now on, if it may run there. */
static __noinline bool heed(struct nq_task *t, u32 pid, u32 tgid, u32 cpu)
{
	struct nq_told *said = said_of(pid, tgid);
	struct nq_process *process;
	u32 node, why;

	if (!t)
		return false;
	if (!said) {
		nq_untold(t);
		return false;
	}
	node = nq_node_by_id(&nq, said->node);
	why = nq_is_told(said->why) ? NQ_WHY_TOLD : said->why;
	if (node == NQ_NONE || !nq_is_open(&nq, t, node))
		return false;
	if (t->homed && t->home == node && (!nq_is_told(why) || !nq_told_to_stay(t)))
		return true;
	process = bpf_map_lookup_elem(&processes, &tgid);
	/* Any of its threads hears it for the process: the first one may sleep for ever. */
	if (process && (pid == tgid || !bpf_map_lookup_elem(&told, &pid))) {
		process->home = node;
		process->inherited = false;
	}
	if (!t->homed || t->home != node)
		settle(t, process, node, why);
	nq_count(&nq, cpu, nq_given_as(why));
	return true;
}

/*
 * The home that the first task of a new process has because it was told of the task that forks it, or NQ_NONE. Looked up here, as a
 * task hears of what is told only now and then. It may be that nobody has told anything for long: then this is two look-ups.
 */
static __noinline u32 inherits(struct nq_task *t, struct nq_task *parents, u32 pid, u32 tgid)
{
	struct nq_told *said = said_of(pid, tgid);
	u32 node = NQ_NONE;

	if (!t || !parents)
		return NQ_NONE;
	if (said && nq_is_told(said->why))
		node = nq_node_by_id(&nq, said->node);
	return nq_inherits(&nq, t, parents, node);
}

static __always_inline void copy_mask(struct nq_task *t, const struct cpumask *mask)
{
	u32 cpus = nq.cpus, word, i;

	bpf_for(word, 0, NQ_WORDS)
		t->allowed[word & (NQ_WORDS - 1)] = 0;
	bpf_for(i, 0, cpus) {
		if (bpf_cpumask_test_cpu(i, mask))
			t->allowed[NQ_WORD(i)] |= NQ_BIT(i);
	}
}

/* Whether a task may run nowhere but there. */
static __noinline bool is_only_cpu(struct nq_task *t, u32 cpu)
{
	u32 word;

	if (!t)
		return false;
	bpf_for(word, 0, NQ_WORDS) {
		u64 others = t->allowed[word & (NQ_WORDS - 1)];

		if (word == NQ_WORD(cpu))
			others &= ~NQ_BIT(cpu);
		if (others)
			return false;
	}
	return true;
}

/* ---- the hooks ---- */

SEC("struct_ops/select_cpu")
s32 BPF_PROG(home_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct nq_task *t = task_of(p);
	u32 event = NQ_WAITED, waker = NQ_NONE, cpu;

	if (!t)
		return prev;
	if (!(++t->wakes % WAKES))
		heed(t, p->pid, p->tgid, prev);
	if (wake_flags & SCX_WAKE_SYNC)
		waker = bpf_get_smp_processor_id();
	cpu = nq_select_cpu(&nq, t, prev, waker, &event);
	nq_count(&nq, cpu, event);
	if (event != NQ_WAITED)
		insert(p, SCX_DSQ_LOCAL, nq.weights.slice, 0);
	return cpu;
}

SEC("struct_ops/enqueue")
void BPF_PROG(home_enqueue, struct task_struct *p, u64 flags)
{
	struct nq_task *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = time_now();
	u32 llc, idle, stray;

	if (!t || belongs_to_cpu(p)) {
		insert(p, SCX_DSQ_LOCAL, ENDLESS, flags);
		if (flags & SCX_ENQ_LAST)
			kick(cpu, 0);
		return;
	}
	/* Meanwhile there is no room at home. The CPU has decided to be idle: it has to look again. */
	if ((flags & SCX_ENQ_LAST) && !nq_leaves(&nq, t, cpu)) {
		insert(p, SCX_DSQ_LOCAL, nq.weights.slice, flags);
		kick(cpu, 0);
		return;
	}
	llc = nq_enqueue(&nq, t, cpu, flags & SCX_ENQ_WAKEUP, now);
	idle = nq_wake(&nq, t, llc, now);
	/* From here no kick can be sent: then that CPU gets it without one. */
	if (idle != NQ_NONE && !nq_is_online(&nq, bpf_get_smp_processor_id())) {
		insert(p, SCX_DSQ_LOCAL_ON | idle, nq.weights.slice, flags);
		return;
	}
	/* It is there only after this hook has ended: see nq_looks_again. */
	insert_vtime(p, llc, nq.weights.slice, t->vtime, flags);
	if (idle != NQ_NONE) {
		kick(idle, SCX_KICK_IDLE);
		return;
	}
	stray = nq_displaces(&nq, t, llc);
	if (stray != NQ_NONE)
		kick(stray, SCX_KICK_PREEMPT);
	else if ((flags & SCX_ENQ_WAKEUP) && nq_preempts(&nq, t, cpu, now)) {
		nq_count(&nq, cpu, NQ_PREEMPTED);
		kick(cpu, SCX_KICK_PREEMPT);
	}
}

/* Takes the first task of a queue that fits; looks at it from its end if the flags say so. */
static __noinline bool take_fitting(u32 llc, s32 cpu, u32 what, u64 now, u64 flags)
{
	struct task_struct *p;
	u32 looked_at = 0;
	bool took = false;

	bpf_for_each(scx_dsq, p, llc, flags) {
		struct nq_task *t = task_of(p);

		if (t && nq_fits(&nq, t, cpu, what, now) && move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu)) {
			took = true;
			break;
		}
		if (++looked_at >= NQ_LOOKED_AT)
			break;
	}
	return took;
}

/* Takes what the policy says, if it is there. */
static __always_inline bool take_from(u32 llc, s32 cpu, u32 what, u64 now)
{
	if (what == NQ_TAKE_FIRST)
		return move_to_local(llc);
	return take_fitting(llc, cpu, what, now, what == NQ_TAKE_OLD ? SCX_DSQ_ITER_REV : 0);
}

/* Looks for a task for a CPU; `stays` if the one that ran there can go on. */
static __noinline bool take(s32 cpu, bool stays)
{
	struct nq_cpu_state *on = NQ_ON_CPU(&nq, cpu);
	u64 now = time_now();
	u32 i;
	/* The compiler must not keep it where the loop's iterator was. */
	volatile bool took = false;

	nq_begin(&nq, cpu);
	bpf_for(i, 0, NQ_LLCS + NQ_NODES) {
		u32 what = nq_next(&nq, cpu, stays, now);

		if (what == NQ_TAKE_NOTHING)
			break;
		if (take_from(on->queue, cpu, what, now)) {
			nq_count(&nq, cpu, on->event);
			took = true;
			break;
		}
	}
	return took;
}

/* A queue in which there are fewer tasks than are counted, or NQ_NONE. */
static __noinline u32 on_its_way(void)
{
	u32 llcs = nq.llcs, i;

	bpf_for(i, 0, llcs) {
		if (scx_bpf_dsq_nr_queued(i) < (s32)nq_read(NQ_ON_LLC(&nq, i)->waiting))
			return i;
	}
	return NQ_NONE;
}

SEC("struct_ops/dispatch")
void BPF_PROG(home_dispatch, s32 cpu, struct task_struct *prev)
{
	bool stays = prev && (prev->scx.flags & SCX_TASK_QUEUED);
	u64 now = time_now();
	struct nq_task *t = NULL;

	if (stays) {
		t = task_of(prev);
		/* How far it is decides who goes on. */
		if (t)
			nq_charge(&nq, t, cpu, now);
	}
	if (take(cpu, stays))
		return;
	if (stays) {
		/* With a slice it goes on at once; without one it is enqueued, and goes home. */
		if (belongs_to_cpu(prev))
			set_slice(prev, ENDLESS);
		else if (!t || !nq_leaves(&nq, t, cpu))
			set_slice(prev, nq.weights.slice);
		return;
	}
	/* First it is idle for all to see, then it looks again. */
	nq_idle(&nq, cpu);
	if (!nq_anything(&nq, cpu, now))
		return;
	if (take(cpu, false))
		nq_busy(&nq, cpu);
	else if (nq_looks_again(&nq, cpu, on_its_way()))
		kick(cpu, 0);
}

/* How far the first one of a queue is. */
static __noinline u64 first_of(u32 llc)
{
	volatile u64 first = NQ_NOBODY;
	struct task_struct *p;

	bpf_for_each(scx_dsq, p, llc, 0) {
		first = p->scx.dsq_vtime;
		break;
	}
	return first;
}

/* Bytes that a process has touched of its own, but for what CPUs have not said yet; all there are where the kernel counts otherwise. */
static __always_inline u64 touched(struct task_struct *p)
{
	s64 pages;

	if (!bpf_core_field_exists(p->mm->rss_stat[MM_ANONPAGES].count))
		return ~0ULL;
	pages = BPF_CORE_READ(p, mm, rss_stat[MM_ANONPAGES].count);
	return pages > 0 ? (u64)pages * 4096 : 0;
}

/* Two of its threads may list a process at once: it is there twice then. */
static __always_inline void list(struct nq_process *process, struct task_struct *p)
{
	u32 round = nq_read(ran.round), at;

	if (process->listed == round)
		return;
	process->listed = round;
	process->touched = touched(p);
	at = __sync_fetch_and_add(&ran.list[round & 1].count, 1);
	if (at < RAN)
		ran.list[round & 1].pids[at] = p->tgid;
}

/* What a task has used of a CPU is its process's too. Not worth a look-up each time that it sleeps: a millisecond at a time. */
#define ACCOUNTED 1000000

static __noinline void account(struct nq_task *t, struct task_struct *p, u32 cpu)
{
	u32 tgid = p->tgid;
	struct nq_process *process;
	u64 used;

	if (!t)
		return;
	used = t->home_ns + t->away_ns - t->accounted;
	if (used < ACCOUNTED)
		return;
	t->accounted += used;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process)
		return;
	__sync_fetch_and_add(&process->ran[nq_node_of(&nq, cpu) & (NQ_NODES - 1)], used);
	list(process, p);
}

/* A task that has begun its program a moment ago, and is alone in its process, may have another home while that costs nothing. */
static __noinline void reconsider(struct nq_task *t, u64 touched, u32 tgid, u32 cpu)
{
	struct nq_process *process;
	u32 home;

	if (!t)
		return;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!process || process->threads != 1)
		return;
	home = nq_reconsiders(&nq, t, touched);
	if (home == NQ_NONE)
		return;
	process->home = home;
	settle(t, process, home, NQ_WHY_ROOM);
	nq_count(&nq, cpu, NQ_HOME_ROOM);
}

SEC("struct_ops/tick")
void BPF_PROG(home_tick, struct task_struct *p)
{
	struct nq_task *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = time_now();
	u32 idle, llc;
	bool yields;

	if (!t)
		return;
	llc = NQ_CPU(&nq, cpu)->llc;
	if (belongs_to_cpu(p)) {
		if (nq_is_online(&nq, cpu) && now - t->began_at >= nq.weights.slice && nq_read(NQ_ON_LLC(&nq, llc)->waiting))
			set_slice(p, 0);
		return;
	}
	if (!heed(t, p->pid, p->tgid, cpu) && nq_is_young(&nq, t))
		reconsider(t, touched(p), p->tgid, cpu);
	nq_advance(&nq, llc, first_of(llc), now);
	yields = nq_tick(&nq, t, cpu, now);
	account(t, p, cpu);
	/* One that was sent to this CPU as it was idle, and came too late. */
	if (scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL) > 0 && now - t->began_at >= nq.weights.busy_slice)
		yields = true;
	if (yields)
		set_slice(p, 0);
	idle = NQ_ON_CPU(&nq, cpu)->wakes;
	if (idle != NQ_NONE)
		kick(idle, SCX_KICK_IDLE);
}

SEC("struct_ops/running")
void BPF_PROG(home_running, struct task_struct *p)
{
	struct nq_task *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 slice;

	if (!t)
		return;
	slice = nq_running(&nq, t, cpu, time_now());
	if (belongs_to_cpu(p))
		set_slice(p, ENDLESS);
	else if (p->scx.slice > slice)
		set_slice(p, slice);
}

SEC("struct_ops/stopping")
void BPF_PROG(home_stopping, struct task_struct *p, bool runnable)
{
	struct nq_task *t = task_of(p);
	s32 cpu = scx_bpf_task_cpu(p);
	u64 now = time_now();

	if (!t)
		return;
	nq_stopping(&nq, t, cpu, now);
	/* Here and not in `quiescent`, which is called next: a hook for each sleep costs more than what it does. */
	if (!runnable)
		nq_quiescent(&nq, t, now);
	account(t, p, cpu);
}

/* It is the scheduler's no more. One that waited did not stop before, and no other hook says that it waits no more; where it is enqueued anew
 * instead, it is counted anew. */
SEC("struct_ops/disable")
void BPF_PROG(home_disable, struct task_struct *p)
{
	struct nq_task *t = task_of(p);

	if (t)
		nq_quiescent(&nq, t, time_now());
}

SEC("struct_ops/update_idle")
void BPF_PROG(home_update_idle, s32 cpu, bool idle)
{
	if (!idle) {
		nq_busy(&nq, cpu);
		return;
	}
	nq_idle(&nq, cpu);
	if (nq_anything(&nq, cpu, time_now()))
		kick(cpu, 0);
}

/* The CPU is a real-time task's: those that wait for it alone shall wait elsewhere. */
SEC("struct_ops/cpu_release")
void BPF_PROG(home_cpu_release, s32 cpu, struct scx_cpu_release_args *args)
{
	nq_busy(&nq, cpu);
	if (nq_is_online(&nq, cpu))
		scx_bpf_reenqueue_local();
}

SEC("struct_ops/set_weight")
void BPF_PROG(home_set_weight, struct task_struct *p, u32 weight)
{
	struct nq_task *t = task_of(p);

	if (t)
		t->weight = weight;
}

SEC("struct_ops/set_cpumask")
void BPF_PROG(home_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct nq_task *t = task_of(p);
	u32 tgid = p->tgid, cpu = scx_bpf_task_cpu(p);

	if (!t)
		return;
	copy_mask(t, mask);
	/*
	 * One that cannot leave its CPU just now, and is preempted then, has that one CPU for a moment, which says nothing of where it belongs.
	 * The hook for programs that begin is run so.
	 */
	if (p->migration_disabled && p->nr_cpus_allowed > 1 && is_only_cpu(t, cpu))
		return;
	if (t->homed && !nq_is_open(&nq, t, t->home)) {
		settle(t, bpf_map_lookup_elem(&processes, &tgid), nq_pick(&nq, t, nq_node_of(&nq, cpu)), NQ_WHY_AFFINITY);
		nq_count(&nq, cpu, NQ_HOME_AFFINITY);
	} else if (t->why == NQ_WHY_EXEC && nq_is_bound(&nq, t, t->home)) {
		t->why = NQ_WHY_AFFINITY;
	}
}

SEC("struct_ops/init_task")
s32 BPF_PROG(home_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	u32 cpu = bpf_get_smp_processor_id(), tgid = p->tgid, pid = p->pid, here, home, why;
	struct nq_process *process;
	bool inherited = false;
	struct nq_task *t;

	t = bpf_task_storage_get(&tasks, p, 0, BPF_LOCAL_STORAGE_GET_F_CREATE);
	if (!t)
		return -12;
	nq_init_task(&nq, t, p->scx.weight);
	copy_mask(t, p->cpus_ptr);
	here = nq_node_of(&nq, args->fork ? cpu : scx_bpf_task_cpu(p));
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (!args->fork) {
		/* It was there before the scheduler: it stays where it is. */
		home = process ? process->home : here;
		if (!nq_is_open(&nq, t, home))
			home = nq_pick(&nq, t, here);
		why = NQ_WHY_FOUND;
	} else if (process) {
		inherited = process->inherited && nq_is_open(&nq, t, process->home);
		home = inherited ? process->home : nq_pick_for_thread(&nq, t, process);
		why = inherited ? NQ_WHY_TOLD : NQ_WHY_THREAD;
	} else {
		struct task_struct *parent = bpf_get_current_task_btf();
		struct nq_task *parents = task_of(parent);

		home = inherits(t, parents, parent->pid, parent->tgid);
		inherited = home != NQ_NONE;
		/* One that borrows its parent's memory until it begins a program is at home with it until then. */
		if (!inherited && parents && parents->homed && p->mm && p->mm == parent->mm && nq_is_open(&nq, t, parents->home))
			home = parents->home;
		else if (!inherited)
			home = nq_pick(&nq, t, here);
		why = inherited ? NQ_WHY_TOLD : NQ_WHY_FORK;
	}
	/* What was told of its number was told of one that had ended by then, as nobody knows the number of this one yet. */
	if (args->fork)
		bpf_map_delete_elem(&told, &pid);
	if (!process) {
		bpf_map_update_elem(&processes, &tgid, &no_process, BPF_ANY);
		process = bpf_map_lookup_elem(&processes, &tgid);
		if (process) {
			process->home = home;
			process->inherited = inherited;
		}
	}
	if (process)
		__sync_fetch_and_add(&process->threads, 1);
	settle(t, process, home, why);
	if (inherited)
		nq_inherited(t);
	if (args->fork)
		nq_count(&nq, cpu, inherited ? NQ_HOME_TOLD : why == NQ_WHY_THREAD ? NQ_HOME_THREAD : NQ_HOME_FORK);
	heed(t, pid, tgid, cpu);
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(home_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct nq_task *t = task_of(p);
	u32 tgid = p->tgid, pid = p->pid;
	struct nq_process *process;

	bpf_map_delete_elem(&told, &pid);
	if (!t)
		return;
	process = bpf_map_lookup_elem(&processes, &tgid);
	if (process) {
		if (t->homed)
			__sync_fetch_and_sub(&process->at_home[t->home & (NQ_NODES - 1)], 1);
		if (__sync_fetch_and_sub(&process->threads, 1) == 1)
			bpf_map_delete_elem(&processes, &tgid);
	}
	nq_exit_task(&nq, t, time_now());
	bpf_task_storage_delete(&tasks, p);
}

SEC("struct_ops/cpu_online")
void BPF_PROG(home_cpu_online, s32 cpu)
{
	nq_online(&nq, cpu, true);
}

SEC("struct_ops/cpu_offline")
void BPF_PROG(home_cpu_offline, s32 cpu)
{
	nq_online(&nq, cpu, false);
}

/* The task begins a program: its memory is new, so now is when its home can be chosen for nothing. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(home_exec, struct task_struct *p, int old_pid, struct linux_binprm *program)
{
	struct nq_task *t = task_of(p);
	u32 cpu = bpf_get_smp_processor_id(), tgid = p->tgid, pid = p->pid, home;
	struct nq_process *process;
	struct nq_told *said;

	if (!t)
		return 0;
	/* The memory that it followed is gone. */
	said = bpf_map_lookup_elem(&told, &tgid);
	if (said && !nq_is_told(said->why))
		bpf_map_delete_elem(&told, &tgid);
	if (!heed(t, pid, tgid, cpu) && !nq_keeps_home(t)) {
		process = bpf_map_lookup_elem(&processes, &tgid);
		home = nq_pick(&nq, t, nq_node_of(&nq, cpu));
		if (process) {
			process->home = home;
			process->inherited = false;
		}
		settle(t, process, home, nq_is_bound(&nq, t, home) ? NQ_WHY_AFFINITY : NQ_WHY_EXEC);
		nq_count(&nq, cpu, NQ_HOME_EXEC);
	}
	/* It goes there before it touches memory. */
	if (t->home != nq_node_of(&nq, cpu))
		kick(cpu, SCX_KICK_PREEMPT);
	return 0;
}

SEC("struct_ops.s/init")
s32 BPF_PROG(home_init)
{
	u32 llcs = nq.llcs, i;

	bpf_for(i, 0, llcs) {
		s32 failed = scx_bpf_create_dsq(i, -1);

		if (failed)
			return failed;
	}
	return 0;
}

SEC("struct_ops/exit")
void BPF_PROG(home_exit, struct scx_exit_info *info)
{
	bpf_probe_read_kernel_str(exit_info.reason, sizeof(exit_info.reason), info->reason);
	bpf_probe_read_kernel_str(exit_info.message, sizeof(exit_info.message), info->msg);
	exit_info.code = info->exit_code;
	exit_info.kind = info->kind;
}

SEC(".struct_ops.link")
struct sched_ext_ops nearq_home = {
	.select_cpu = (void *)home_select_cpu,
	.enqueue = (void *)home_enqueue,
	.dispatch = (void *)home_dispatch,
	.tick = (void *)home_tick,
	.running = (void *)home_running,
	.stopping = (void *)home_stopping,
	.disable = (void *)home_disable,
	.set_weight = (void *)home_set_weight,
	.set_cpumask = (void *)home_set_cpumask,
	.update_idle = (void *)home_update_idle,
	.cpu_release = (void *)home_cpu_release,
	.init_task = (void *)home_init_task,
	.exit_task = (void *)home_exit_task,
	.cpu_online = (void *)home_cpu_online,
	.cpu_offline = (void *)home_cpu_offline,
	.init = (void *)home_init,
	.exit = (void *)home_exit,
	.flags = SCX_OPS_ENQ_LAST,
	.timeout_ms = 10000,
	.name = "nearq_home",
};
