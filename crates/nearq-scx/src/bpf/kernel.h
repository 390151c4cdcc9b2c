/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/*
 * The part of the kernel's interface that the scheduler uses: names of types, fields and functions, as in Linux 6.12. The offsets of fields
 * in the running kernel are found when the program is loaded (CO-RE). What kernels later than 6.12 have renamed is declared under both
 * names, and the existing one is used.
 */
#ifndef NEARQ_KERNEL_H
#define NEARQ_KERNEL_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef signed char s8;
typedef short s16;
typedef int s32;
typedef long long s64;
typedef u8 __u8;
typedef u16 __u16;
typedef u32 __u32;
typedef u64 __u64;
typedef s32 __s32;
typedef s64 __s64;
typedef u16 __be16;
typedef u32 __be32;
typedef u32 __wsum;
typedef _Bool bool;
#define true 1
#define false 0

enum bpf_map_type {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
	BPF_MAP_TYPE_TASK_STORAGE = 29,
};

enum {
	BPF_ANY = 0,
	BPF_F_NO_PREALLOC = 1,
	BPF_F_MMAPABLE = 1024,
	BPF_LOCAL_STORAGE_GET_F_CREATE = 1,
};

#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)

struct cpumask {
	unsigned long bits[1];
};
typedef struct cpumask cpumask_t;

struct percpu_counter {
	s64 count;
};

enum {
	MM_ANONPAGES = 1,
};

struct mm_struct {
	struct percpu_counter rss_stat[4];
};

struct sched_ext_entity {
	u32 flags;
	u32 weight;
	u64 slice;
	u64 dsq_vtime;
};

struct task_struct {
	unsigned int flags;
	int nr_cpus_allowed;
	unsigned short migration_disabled;
	const cpumask_t *cpus_ptr;
	struct mm_struct *mm;
	int pid;
	int tgid;
	struct sched_ext_entity scx;
};

struct linux_binprm;

struct scx_init_task_args {
	bool fork;
};

struct scx_exit_task_args {
	bool cancelled;
};

enum scx_exit_kind {
	SCX_EXIT_NONE = 0,
	SCX_EXIT_ERROR = 1024,
};

struct scx_exit_info {
	enum scx_exit_kind kind;
	s64 exit_code;
	const char *reason;
	char *msg;
};

#pragma clang attribute pop

struct scx_cpu_release_args;
struct scx_cpu_acquire_args;

/* The hooks that are used; the kernel treats those that are missing here as unset. */
struct sched_ext_ops {
	s32 (*select_cpu)(struct task_struct *, s32, u64);
	void (*enqueue)(struct task_struct *, u64);
	void (*dispatch)(s32, struct task_struct *);
	void (*tick)(struct task_struct *);
	void (*running)(struct task_struct *);
	void (*stopping)(struct task_struct *, bool);
	void (*disable)(struct task_struct *);
	void (*set_weight)(struct task_struct *, u32);
	void (*set_cpumask)(struct task_struct *, const struct cpumask *);
	void (*update_idle)(s32, bool);
	void (*cpu_release)(s32, struct scx_cpu_release_args *);
	s32 (*init_task)(struct task_struct *, struct scx_init_task_args *);
	void (*exit_task)(struct task_struct *, struct scx_exit_task_args *);
	void (*cpu_online)(s32);
	void (*cpu_offline)(s32);
	s32 (*init)(void);
	void (*exit)(struct scx_exit_info *);
	u64 flags;
	u32 timeout_ms;
	char name[128];
};

/* Values that have been the same since 6.12. */
#define SCX_DSQ_LOCAL 0x8000000000000002ULL
#define SCX_DSQ_LOCAL_ON 0xc000000000000000ULL
#define SCX_DSQ_ITER_REV (1ULL << 16)
#define SCX_ENQ_WAKEUP 1ULL
#define SCX_ENQ_LAST (1ULL << 41)
#define SCX_WAKE_SYNC 16ULL
#define SCX_KICK_IDLE 1ULL
#define SCX_KICK_PREEMPT 2ULL
#define SCX_OPS_ENQ_LAST 2ULL
#define SCX_TASK_QUEUED 1U
#define PF_KTHREAD 0x00200000U

struct bpf_iter_num {
	u64 __opaque[1];
} __attribute__((aligned(8)));
struct bpf_iter_scx_dsq {
	u64 __opaque[6];
};

#ifndef __ksym
#define __ksym __attribute__((section(".ksyms")))
#endif
#define maybe __attribute__((weak)) __ksym

extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) maybe;
extern int *bpf_iter_num_next(struct bpf_iter_num *it) maybe;
extern void bpf_iter_num_destroy(struct bpf_iter_num *it) maybe;
/* The iterator of the loop bpf_for_each(). */
#define BPF_FOR_EACH_ITER (&___it)
extern int bpf_iter_scx_dsq_new(struct bpf_iter_scx_dsq *it, u64 dsq_id, u64 flags) maybe;
extern struct task_struct *bpf_iter_scx_dsq_next(struct bpf_iter_scx_dsq *it) maybe;
extern void bpf_iter_scx_dsq_destroy(struct bpf_iter_scx_dsq *it) maybe;

extern bool bpf_cpumask_test_cpu(u32 cpu, const struct cpumask *cpumask) maybe;
extern s32 scx_bpf_create_dsq(u64 dsq_id, s32 node) maybe;
extern void scx_bpf_kick_cpu(s32 cpu, u64 flags) maybe;
extern s32 scx_bpf_dsq_nr_queued(u64 dsq_id) maybe;
extern s32 scx_bpf_task_cpu(const struct task_struct *p) maybe;
extern u32 scx_bpf_reenqueue_local(void) maybe;

/* Since 6.13. */
extern void scx_bpf_dsq_insert(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) maybe;
extern void scx_bpf_dsq_insert_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) maybe;
extern bool scx_bpf_dsq_move_to_local(u64 dsq_id) maybe;
extern bool scx_bpf_dsq_move(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) maybe;
/* Until then. */
extern void scx_bpf_dispatch(struct task_struct *p, u64 dsq_id, u64 slice, u64 enq_flags) maybe;
extern void scx_bpf_dispatch_vtime(struct task_struct *p, u64 dsq_id, u64 slice, u64 vtime, u64 enq_flags) maybe;
extern bool scx_bpf_consume(u64 dsq_id) maybe;
extern bool scx_bpf_dispatch_from_dsq(struct bpf_iter_scx_dsq *it__iter, struct task_struct *p, u64 dsq_id, u64 enq_flags) maybe;
/* Since 6.14. */
extern u64 scx_bpf_now(void) maybe;
/* Since 6.19. Later kernels may not allow writing the field itself. */
extern bool scx_bpf_task_set_slice(struct task_struct *p, u64 slice) maybe;

#endif /* NEARQ_KERNEL_H */
