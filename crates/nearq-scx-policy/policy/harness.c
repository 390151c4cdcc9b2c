/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* The policy as functions that can be called from Rust, and the sizes and places of its structures, which Rust knows by heart. */
#include <stddef.h>

#include "types.h"
#include "policy.h"

void nqh_defaults(struct nq_weights *weights) { nq_defaults(weights); }
void nqh_idle(struct nq *q, u32 cpu) { nq_idle(q, cpu); }
bool nqh_busy(struct nq *q, u32 cpu) { return nq_busy(q, cpu); }
void nqh_online(struct nq *q, u32 cpu, bool online) { nq_online(q, cpu, online); }
u32 nqh_pick(struct nq *q, struct nq_task *t, u32 from) { return nq_pick(q, t, from); }
u32 nqh_pick_for_thread(struct nq *q, struct nq_task *t, struct nq_process *process) { return nq_pick_for_thread(q, t, process); }
u32 nqh_node_by_id(struct nq *q, u32 id) { return nq_node_by_id(q, id); }
bool nqh_is_bound(struct nq *q, struct nq_task *t, u32 home) { return nq_is_bound(q, t, home); }
bool nqh_is_open(struct nq *q, struct nq_task *t, u32 node) { return nq_is_open(q, t, node); }
void nqh_set_home(struct nq *q, struct nq_task *t, u32 home, u8 why) { nq_set_home(q, t, home, why); }
u32 nqh_inherits(struct nq *q, struct nq_task *t, struct nq_task *parents, u32 said) { return nq_inherits(q, t, parents, said); }
void nqh_inherited(struct nq_task *t) { nq_inherited(t); }
bool nqh_keeps_home(struct nq_task *t) { return nq_keeps_home(t); }
bool nqh_told_to_stay(struct nq_task *t) { return nq_told_to_stay(t); }
void nqh_untold(struct nq_task *t) { nq_untold(t); }
void nqh_init_task(struct nq *q, struct nq_task *t, u32 weight) { nq_init_task(q, t, weight); }
void nqh_exit_task(struct nq *q, struct nq_task *t, u64 now) { nq_exit_task(q, t, now); }
void nqh_runnable(struct nq *q, struct nq_task *t) { nq_runnable(q, t); }
void nqh_quiescent(struct nq *q, struct nq_task *t, u64 now) { nq_quiescent(q, t, now); }
u32 nqh_select_cpu(struct nq *q, struct nq_task *t, u32 prev, u32 waker, u32 *event) { return nq_select_cpu(q, t, prev, waker, event); }
u32 nqh_enqueue(struct nq *q, struct nq_task *t, u32 cpu, bool woken, u64 now) { return nq_enqueue(q, t, cpu, woken, now); }
void nqh_leave_queue(struct nq *q, struct nq_task *t, u64 now) { nq_leave_queue(q, t, now); }
u32 nqh_wake(struct nq *q, struct nq_task *t, u32 llc, u64 now) { return nq_wake(q, t, llc, now); }
bool nqh_leaves(struct nq *q, struct nq_task *t, u32 cpu) { return nq_leaves(q, t, cpu); }
bool nqh_fits(struct nq *q, struct nq_task *t, u32 cpu, u32 what, u64 now) { return nq_fits(q, t, cpu, what, now); }
void nqh_charge(struct nq *q, struct nq_task *t, u32 cpu, u64 now) { nq_charge(q, t, cpu, now); }
u32 nqh_displaces(struct nq *q, struct nq_task *t, u32 llc) { return nq_displaces(q, t, llc); }
u64 nqh_running(struct nq *q, struct nq_task *t, u32 cpu, u64 now) { return nq_running(q, t, cpu, now); }
void nqh_stopping(struct nq *q, struct nq_task *t, u32 cpu, u64 now) { nq_stopping(q, t, cpu, now); }
bool nqh_preempts(struct nq *q, struct nq_task *t, u32 cpu, u64 now) { return nq_preempts(q, t, cpu, now); }
void nqh_advance(struct nq *q, u32 llc, u64 first, u64 now) { nq_advance(q, llc, first, now); }
void nqh_begin(struct nq *q, u32 cpu) { nq_begin(q, cpu); }
u32 nqh_next(struct nq *q, u32 cpu, bool stays, u64 now) { return nq_next(q, cpu, stays, now); }
bool nqh_anything(struct nq *q, u32 cpu, u64 now) { return nq_anything(q, cpu, now); }
bool nqh_looks_again(struct nq *q, u32 cpu, u32 llc) { return nq_looks_again(q, cpu, llc); }
u32 nqh_reconsiders(struct nq *q, struct nq_task *t, u64 touched) { return nq_reconsiders(q, t, touched); }
bool nqh_tick(struct nq *q, struct nq_task *t, u32 cpu, u64 now) { return nq_tick(q, t, cpu, now); }
void nqh_count(struct nq *q, u32 cpu, u32 event) { nq_count(q, cpu, event); }

/* For the test that Rust's structures are these. */
const size_t nqh_sizes[] = {
	sizeof(struct nq_cpu), sizeof(struct nq_llc), sizeof(struct nq_node), sizeof(struct nq_weights),
	sizeof(struct nq_cpu_state), sizeof(struct nq_llc_state), sizeof(struct nq_node_state), sizeof(struct nq_task), sizeof(struct nq), sizeof(struct nq_process),
	sizeof(struct nq_told),
	offsetof(struct nq, weights), offsetof(struct nq, idle), offsetof(struct nq, cpu), offsetof(struct nq, llc),
	offsetof(struct nq, node), offsetof(struct nq, on_cpu), offsetof(struct nq, on_llc), offsetof(struct nq, on_node),
	offsetof(struct nq_task, allowed), offsetof(struct nq_task, home), offsetof(struct nq_task, why), offsetof(struct nq_task, told),
	offsetof(struct nq_cpu_state, events), offsetof(struct nq_cpu_state, step), offsetof(struct nq_node, near),
	NQ_EVENTS,
};
