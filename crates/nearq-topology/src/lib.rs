//! Which CPUs, caches, nodes and distances a machine has, and the pods of every scope.
//!
//! Everything here is plain data. A [`Topology`] is built from the files a Linux kernel publishes
//! ([`Topology::from_sysfs`]), from a short synthetic description ([`Topology::from_synthetic`]) or from an
//! hwloc XML export (`Topology::from_hwloc_xml`), and never changes afterwards: if the machine
//! changes, build another one. [`Topology::pods`] groups its CPUs the way the kernel's workqueues do, and
//! [`Limits`] says which of the CPUs this process may use and why.
//!
//! ```
//! # mod nearq { pub use nearq_topology as topology; }
//! use nearq::topology::{DEFAULT_SHARD_SIZE, AffinityScope, Topology};
//!
//! // Two packages, each with two L3 caches, each of them shared by four cores of two CPUs.
//! let machine = Topology::from_synthetic("pack:2 l3:2 core:4 pu:2")?;
//! assert_eq!(machine.cpus().len(), 32);
//! assert_eq!(machine.pods(AffinityScope::Cache, DEFAULT_SHARD_SIZE).pods.len(), 4);
//! # Ok::<(), nearq::topology::TopologyError>(())
//! ```
//!
//! # Ids and indices
//!
//! A part has an *id*, which is the number that the operating system gives it (hwloc's `os_index`), and an *index*, which is its place in
//! the slice of [`Topology`] that lists the parts of its kind (hwloc's `logical_index`). Ids may have gaps; indices begin at 0 and have
//! none. The name of a function that takes or returns a number says which of the two it is: [`Topology::node_index`] takes the id of a CPU
//! and returns the index of a node, and [`Node::id`] is the node's id. A [`CpuSet`] holds ids.
//!
//! # How the groups nest
//!
//! ```text
//! CPU  ⊆  core (SMT group)  ⊆  LLC domain  ⊆  node  ⊆  machine
//! ```
//!
//! These always nest, whatever the machine claims. So a last-level cache that spans several nodes (sub-NUMA clustering) is cut into one LLC
//! domain for each node, as the kernel's scheduler domains do; [`Topology::caches`] still shows the cache whole. Packages, dies and
//! clusters are reported as found, and may cross nodes.
//!
//! # Features
//!
//! | feature | what it adds |
//! |---|---|
//! | `hwloc` | `Topology::from_hwloc_xml`, and such files for [`Topology::from_description`] |

mod assemble;
mod cpuset;
mod debug;
mod describe;
mod devices;
mod distance;
mod error;
mod files;
#[cfg(feature = "hwloc")]
mod hwloc_xml;
mod isolated;
mod limits;
mod parts;
mod pods;
mod regular;
#[doc(hidden)]
pub mod safe_text;
mod scope;
mod synthetic;
mod sysfs;
mod topology;
mod unread;

#[doc(hidden)]
pub use describe::text_of;

pub use cpuset::{CPU_ID_LIMIT, CpuSet, Iter};
pub use devices::{Device, DeviceError, DeviceKind, DeviceName, NearDevice, NodeSource};
pub use distance::Distance;
pub use error::{CpuIdTooLarge, ParseError, TopologyError};
pub use limits::{Limits, Quota};
pub use parts::{Cache, CacheKind, Core, Cpu, Group, Llc, Node};
pub use pods::{DEFAULT_SHARD_SIZE, Pod, Pods};
pub use scope::AffinityScope;
pub use topology::{LOCAL_DISTANCE, MAX_CPU_COUNT, MAX_NODES, REMOTE_DISTANCE, Topology};
pub use unread::Unread;
