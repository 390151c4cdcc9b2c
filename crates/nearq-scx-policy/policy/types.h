/* SPDX-License-Identifier: GPL-2.0 OR MIT OR Apache-2.0 */
/* What policy.h requires of its includer, in user space. */
#ifndef NEARQ_POLICY_TYPES_H
#define NEARQ_POLICY_TYPES_H

#include <stdbool.h>
#include <stdint.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;
typedef int64_t s64;

#define nq_for(i, from, to) for (i = (from); i < (to); i++)
#define nq_barrier() __sync_synchronize()

#endif
