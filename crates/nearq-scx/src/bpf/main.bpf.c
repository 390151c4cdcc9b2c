// SPDX-License-Identifier: GPL-2.0
/*
 * The node affine scheduler as the kernel runs it: hooks that report events to the policy and carry out its decisions.
 *
 * There is a queue for each last-level cache, with the policy's numbers, ordered by virtual time. A task that finds an idle CPU when it
 * wakes up goes there at once. All other tasks wait in one of the queues, except the kernel's own threads of one CPU, which the policy does
 * not handle.
 *
 * A task that is alone on its CPU has a long slice. Ticks check whether other tasks wait and whether it should go home. When its slice was
 * ended and no other task is there, it gets a new slice and goes on. If it must go home, it is enqueued instead (SCX_OPS_ENQ_LAST).
 *
 * A CPU that is going offline, or is not online yet, needs care:
 * - A kick of another CPU is irq work of the kicking CPU. If it is requested too late it is never done, and neither is any later work of
 *   that CPU, even when it is online again, because the list is not empty then and no interrupt is sent. So such a CPU sends no kicks (see
 *   `kick`).
 * - The kernel does not call `enqueue` for such a CPU, not even for SCX_ENQ_LAST: a task that is alone there and whose slice ends would
 *   wait while the CPU is idle. Most often that would be the thread that takes the CPU offline or brings it online. So the kernel's own
 *   threads of one CPU have slices that do not end by themselves.
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
/* Weak, so that the compiler assumes nothing about the result that the verifier does not know. */
#define NQ_GLOBAL_FN __weak __noinline
#include "policy.h"

char _license[] SEC("license") = "GPL";

/* The machine and everything that is known about it. Filled in before the program is loaded; user space reads it while the program runs. */
struct nq nq;

/* Why the kernel has unloaded the scheduler. */
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

/* Near which CPU threads should wake up the next time. Processes have it in their memory and write it without a system call. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, NQ_HINTS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, u32);
	__type(value, u64);
} near SEC(".maps");

/* The initial value of a process's entry: too large for the stack. */
const struct nq_process no_process = {};

/*
 * The processes that have used a CPU since user space last read the list, so that it need not go through all processes. The lists are used
 * in rounds: one is written while the other is read. Only user space changes `round`; it empties the next list before, and reads the last
 * one after. A writer may miss a change of the round: then its process is in neither list, and in the next one if it goes on.
 */
#define RAN 4096
struct ran_list {
	/* How many there would be if all fitted. */
	u32 count;
	u32 pids[RAN];
};
struct {
	u32 round;
	/* User space reads all of this memory at once, so its length must be a multiple of eight. */
	u32 unused;
	struct ran_list list[2];
} ran;

/* One out of this many wake-ups checks whether a home was told; ticks check too. */
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

/* Nanoseconds; another CPU's clock may differ a little. The kernel may have read the clock already. */
static __always_inline u64 time_now(void)
{
	if (bpf_ksym_exists(scx_bpf_now))
		return scx_bpf_now();
	return bpf_ktime_get_ns();
}

/* Makes a CPU look for tasks, unless the calling CPU is going offline. */
static __always_inline void kick(u32 cpu, u64 flags)
{
	if (nq_is_online(&nq, bpf_get_smp_processor_id()))
		scx_bpf_kick_cpu(cpu, flags);
}

/* Whether it is a thread of the kernel's own that belongs to its CPU: there is nothing to decide. */
static __always_inline bool belongs_to_cpu(struct task_struct *p)
{
	return (p->flags & PF_KTHREAD) && p->nr_cpus_allowed == 1;
}

/* A slice that only a tick ends. */
#define ENDLESS 10000000000ULL

/* ---- homes ---- */

static __always_inline struct nq_task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&tasks, p, 0, 0);
}

/* Sets a task's home and updates its process's count of threads at home. */
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

/* The key of a home that is the thread's own: not that of its process. */
static __always_inline u32 own_key(u32 pid, u32 tgid)
{
	return pid == tgid ? pid | NQ_ALONE : pid;
}

/* The home that was told for a thread: its own, or else its process's. */
static __always_inline struct nq_told *home_hint_of(u32 pid, u32 tgid)
{
	u32 own = own_key(pid, tgid);
	struct nq_told *hint = bpf_map_lookup_elem(&told, &own);

	if (!hint)
		hint = bpf_map_lookup_elem(&told, &tgid);
	return hint;
}

/* Takes over the home that user space has told for the task, if there is one and the task may run there. Returns whether it did. */
NQ_GLOBAL_FN bool take_over_hint(struct nq_task *t, u32 pid, u32 tgid, u32 cpu)
{
	struct nq_told *hint = home_hint_of(pid, tgid);
	struct nq_process *process;
	u32 own = own_key(pid, tgid), node, why;

	if (!t)
		return false;
	if (!hint) {
		nq_untold(t);
		return false;
	}
	node = nq_node_by_id(&nq, hint->node);
	why = nq_is_told(hint->why) ? NQ_WHY_TOLD : hint->why;
	if (node == NQ_NONE || !nq_is_open(&nq, t, node))
		return false;
	if (t->homed && t->home == node && (!nq_is_told(why) || !nq_told_to_stay(t)))
		return true;
	process = bpf_map_lookup_elem(&processes, &tgid);
	/* Any of its threads takes it over for the process, because the first one may sleep for ever. */
	if (process && !bpf_map_lookup_elem(&told, &own)) {
		process->home = node;
		process->inherited = false;
	}
	if (!t->homed || t->home != node)
		settle(t, process, node, why);
	nq_count(&nq, cpu, nq_given_as(why));
	return true;
}

/*
 * The home of the first task of a new process if it inherits one that was told for the forking task, or NQ_NONE. It is looked up here,
 * because a task checks the map only now and then. If no home was told, this costs two look-ups.
 */
static __noinline u32 inherits(struct nq_task *t, struct nq_task *parents, u32 pid, u32 tgid)
{
	struct nq_told *hint = home_hint_of(pid, tgid);
	u32 node = NQ_NONE;

	if (!t || !parents)
		return NQ_NONE;
	if (hint && nq_is_told(hint->why))
		node = nq_node_by_id(&nq, hint->node);
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

/* The CPU from which the search for an idle one begins: the previous one, unless the task has a hint. A hint counts once. */
NQ_GLOBAL_FN u32 begins_at(struct nq_task *t, u32 pid, u32 prev)
{
	u32 place = pid % NQ_HINTS;
	u64 *hint = bpf_map_lookup_elem(&near, &place);
	u64 value;

	if (!t || !hint)
		return prev;
	value = *(volatile u64 *)hint;
	if (value >> 32 != pid)
		return prev;
	/* A hint that is written in between is lost. */
	*(volatile u64 *)hint = 0;
	nq_count(&nq, prev, NQ_HINTED);
	return nq_wakes_near(&nq, t, prev, (u32)value);
}

SEC("struct_ops/select_cpu")
s32 BPF_PROG(home_select_cpu, struct task_struct *p, s32 prev, u64 wake_flags)
{
	struct nq_task *t = task_of(p);
	u32 event = NQ_WAITED, waker = NQ_NONE, cpu;

	if (!t)
		return prev;
	if (!(++t->wakes % WAKES))
		take_over_hint(t, p->pid, p->tgid, prev);
	if (wake_flags & SCX_WAKE_SYNC)
		waker = bpf_get_smp_processor_id();
	cpu = nq_select_cpu(&nq, t, begins_at(t, p->pid, prev), waker, &event);
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
	/* There is no room at home any more. The CPU has decided to be idle, so it must check again. */
	if ((flags & SCX_ENQ_LAST) && !nq_leaves(&nq, t, cpu)) {
		insert(p, SCX_DSQ_LOCAL, nq.weights.slice, flags);
		kick(cpu, 0);
		return;
	}
	llc = nq_enqueue(&nq, t, cpu, flags & SCX_ENQ_WAKEUP, now);
	idle = nq_wake(&nq, t, llc, now);
	/* If this CPU cannot send a kick, the idle CPU gets the task without one. */
	if (idle != NQ_NONE && !nq_is_online(&nq, bpf_get_smp_processor_id())) {
		insert(p, SCX_DSQ_LOCAL_ON | idle, nq.weights.slice, flags);
		return;
	}
	/* It is there only after this hook has ended: see nq_checks_again. */
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

/* Takes the first task of a queue that fits; reads the queue from its end if the flags say so. */
static __noinline bool take_fitting(u32 llc, s32 cpu, u32 what, u64 now, u64 flags)
{
	struct task_struct *p;
	u32 checked = 0;
	bool took = false;

	bpf_for_each(scx_dsq, p, llc, flags) {
		struct nq_task *t = task_of(p);

		if (t && nq_fits(&nq, t, cpu, what, now) && move(BPF_FOR_EACH_ITER, p, SCX_DSQ_LOCAL_ON | cpu)) {
			took = true;
			break;
		}
		if (++checked >= NQ_TAKE_CHECKS)
			break;
	}
	return took;
}

/* Takes the task that the policy names, if it is there. */
static __always_inline bool take_from(u32 llc, s32 cpu, u32 what, u64 now)
{
	if (what == NQ_TAKE_FIRST)
		return move_to_local(llc);
	return take_fitting(llc, cpu, what, now, what == NQ_TAKE_OLD ? SCX_DSQ_ITER_REV : 0);
}

/* Searches a task for a CPU; `stays` if the one that ran there can go on. */
static __noinline bool take(s32 cpu, bool stays)
{
	struct nq_cpu_state *on = NQ_ON_CPU(&nq, cpu);
	u64 now = time_now();
	u32 i;
	/* The compiler must not keep it where the loop's iterator was. */
	volatile bool took = false;

	nq_begin(&nq, cpu);
	bpf_for(i, 0, NQ_MOST_TRIES) {
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
		/* Its virtual time decides which task runs next. */
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
	/* First the CPU is shown as idle, then it checks again. */
	nq_idle(&nq, cpu);
	if (!nq_has_work(&nq, cpu, now))
		return;
	if (take(cpu, false))
		nq_busy(&nq, cpu);
	else if (nq_checks_again(&nq, cpu, on_its_way()))
		kick(cpu, 0);
}

/* The virtual time of the first task of a queue. */
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

/*
 * Bytes of its own memory that a process has touched, without what CPUs have not added to the sum yet; the largest number if the kernel
 * counts in another way.
 */
static __always_inline u64 touched(struct task_struct *p)
{
	s64 pages;

	if (!bpf_core_field_exists(p->mm->rss_stat[MM_ANONPAGES].count))
		return ~0ULL;
	pages = BPF_CORE_READ(p, mm, rss_stat[MM_ANONPAGES].count);
	return pages > 0 ? (u64)pages * 4096 : 0;
}

/* If two of its threads list a process at once, it is in the list twice. */
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

/*
 * CPU time of a task is added to its process's. A look-up each time that it sleeps would cost too much, so this is done a millisecond at a
 * time.
 */
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

/* A task that has begun its program a moment ago, and is alone in its process, may get another home while that costs nothing. */
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
	if (!take_over_hint(t, p->pid, p->tgid, cpu) && nq_is_young(&nq, t))
		reconsider(t, touched(p), p->tgid, cpu);
	nq_advance(&nq, llc, first_of(llc), now);
	yields = nq_tick(&nq, t, cpu, now);
	account(t, p, cpu);
	/* Another task was sent to this CPU when it was idle, and came too late. */
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
	/* Done here and not in `quiescent`, which is called next: a hook for each sleep costs more than its work. */
	if (!runnable)
		nq_quiescent(&nq, t, now);
	account(t, p, cpu);
}

/*
 * The task no longer belongs to the scheduler. A waiting task did not stop before, and no other hook reports that it no longer waits. If it
 * is enqueued again instead, it is counted again.
 */
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
	if (nq_has_work(&nq, cpu, time_now()))
		kick(cpu, 0);
}

/* A real-time task has the CPU: tasks in its local queue must wait elsewhere. */
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
	 * A task that cannot leave its CPU at the moment, and is preempted, has only that CPU for a moment. That does not change its home.
	 * The hook at the start of programs runs in this state.
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
	u32 cpu = bpf_get_smp_processor_id(), tgid = p->tgid, pid = p->pid, own = own_key(pid, tgid), here, home, why;
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
		/* It existed before the scheduler was loaded: it stays where it is. */
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
		/* A task that borrows its parent's memory until it executes a program has its parent's home until then. */
		if (!inherited && parents && parents->homed && p->mm && p->mm == parent->mm && nq_is_open(&nq, t, parents->home))
			home = parents->home;
		else if (!inherited)
			home = nq_pick(&nq, t, here);
		why = inherited ? NQ_WHY_TOLD : NQ_WHY_FORK;
	}
	/*
	 * A home under its number was told for an earlier task that has ended, because this task's number is not known to any program yet.
	 */
	if (args->fork) {
		bpf_map_delete_elem(&told, &pid);
		bpf_map_delete_elem(&told, &own);
	}
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
	take_over_hint(t, pid, tgid, cpu);
	return 0;
}

SEC("struct_ops/exit_task")
void BPF_PROG(home_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct nq_task *t = task_of(p);
	u32 tgid = p->tgid, pid = p->pid, own = own_key(pid, tgid);
	struct nq_process *process;

	bpf_map_delete_elem(&told, &pid);
	bpf_map_delete_elem(&told, &own);
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

/* The task begins a program. Its memory is new, so its home can now be chosen at no cost. */
SEC("tp_btf/sched_process_exec")
int BPF_PROG(home_exec, struct task_struct *p, int old_pid, struct linux_binprm *program)
{
	struct nq_task *t = task_of(p);
	u32 cpu = bpf_get_smp_processor_id(), tgid = p->tgid, pid = p->pid, home;
	struct nq_process *process;
	struct nq_told *hint;

	if (!t)
		return 0;
	/* The memory that it followed is gone. */
	hint = bpf_map_lookup_elem(&told, &tgid);
	if (hint && !nq_is_told(hint->why))
		bpf_map_delete_elem(&told, &tgid);
	if (!take_over_hint(t, pid, tgid, cpu) && !nq_keeps_home(t)) {
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
	/*
	 * The kernel's maximum. Its watchdog is an ordinary task: on a virtual machine whose host took CPUs away, with a hundred tasks a CPU, it
	 * did not run for ten seconds.
	 */
	.timeout_ms = 30000,
	.name = "nearq_home",
};
