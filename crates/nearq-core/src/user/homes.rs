//! How a [`Home`] is made: picked by load, on a given node, near memory, or near a device.

use std::path::Path;

use nearq_platform::{Linux, Platform};
use nearq_topology::{DeviceError, DeviceName, NearDevice};

use crate::base::error::Error;
use crate::homes::{Home, HomeChoice, most_of};
use crate::queue::runtime::Runtime;

impl Home<Linux> {
    /// Makes a home on the least loaded node that the process may use. The load is the homes given out there and the work that runs there
    /// without a home; if two nodes are equal, the nearer to the caller is chosen. With [`HomeChoice::FirstRun`], the node is chosen when
    /// it is first needed.
    ///
    /// # Errors
    /// The process-wide runtime cannot be made ([`Error::Machine`]).
    pub fn pick() -> Result<Self, Error> {
        Ok(Self::pick_in(Runtime::try_global()?))
    }

    /// Makes a home on the node with that number.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use ([`Error::NoHome`], which names the usable nodes). Or the
    /// process-wide runtime cannot be made.
    pub fn on(node: usize) -> Result<Self, Error> {
        Self::on_in(Runtime::try_global()?, node)
    }

    /// Makes a home on the node that has most of the pages of `memory`. At most 256 pages are checked, which takes some 0.1 ms. If none of
    /// them is on a node yet, or the system does not say, the node is chosen as by [`pick`](Self::pick).
    ///
    /// # Errors
    /// The process-wide runtime cannot be made ([`Error::Machine`]).
    pub fn near(memory: &[u8]) -> Result<Self, Error> {
        Ok(Self::near_in(Runtime::try_global()?, memory))
    }

    /// Makes a home on the node that a device is near: `gpu:0`, `pci:0000:41:00.0`, `netdev:eth0`, `block:nvme0n1`, `file:/data/x` or
    /// `ip:10.0.0.1` ([`DeviceName`]). If it is near several nodes, the least loaded of them is chosen. The
    /// machine's devices are read at each call.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::{Workqueue, home::Home};
    ///
    /// // Near the disk that has the data, or anywhere if it is on no disk.
    /// let home = Home::near_device("file:/").or_else(|why| {
    ///     eprintln!("{why}");
    ///     Home::pick()
    /// })?;
    /// let queue = Workqueue::builder("loading").home(&home).build()?;
    /// assert_eq!(queue.spawn(|| 6 * 7).join()?, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// There is no such device, or its node is not known ([`Error::NoDevice`], which lists the devices that exist); the node cannot be a home
    /// ([`Error::NoHome`]). Or the process-wide runtime cannot be made.
    pub fn near_device(name: &str) -> Result<Self, Error> {
        let runtime = Runtime::try_global()?;
        let found = |name: &DeviceName| runtime.topology().near_device(Path::new("/"), name);
        let name = name.parse().map_err(|error| Error::NoDevice(DeviceError::Name(error)))?;
        Self::near_device_in(runtime, &found(&name).map_err(Error::NoDevice)?)
    }
}

impl<P: Platform> Home<P> {
    /// Makes a home as [`pick`](Home::pick) does, for the queues of `runtime`.
    pub fn pick_in(runtime: &Runtime<P>) -> Self {
        Self::pick_when(runtime, runtime.home_choice())
    }

    /// Makes a home as [`pick_in`](Self::pick_in) does, but chooses the node at the time that `choice` names, whatever [the runtime's
    /// setting](Runtime::set_home_choice) is.
    pub fn pick_when(runtime: &Runtime<P>, choice: HomeChoice) -> Self {
        let homes = runtime.homes_of();
        if choice == HomeChoice::FirstRun && homes.has_several() {
            let why = "its node is chosen when it is first needed".to_owned();
            return Self::make(homes, None, why);
        }
        let nodes = homes.nodes();
        let (index, why) = homes.pick(&nodes, P::current_cpu());
        Self::make(homes, Some(nodes.get(index).id as u32), why)
    }

    /// Makes a home as [`on`](Home::on) does, for the queues of `runtime`.
    ///
    /// # Errors
    /// There is no such node, it has no CPUs, or none that the process may use ([`Error::NoHome`], which names the usable nodes).
    pub fn on_in(runtime: &Runtime<P>, node: usize) -> Result<Self, Error> {
        let homes = runtime.homes_of();
        homes.nodes().index_of(node).map_err(Error::NoHome)?;
        let why = format!("node {node} was requested");
        Ok(Self::make(homes, Some(node as u32), why))
    }

    /// Makes a home as [`near`](Home::near) does, for the queues of `runtime`.
    pub fn near_in(runtime: &Runtime<P>, memory: &[u8]) -> Self {
        let homes = runtime.homes_of();
        let nodes = homes.nodes();
        match most_of::<P>(&nodes, memory.as_ptr().addr(), memory.len()) {
            Some((node, why)) => Self::make(homes, Some(node), why),
            None => Self::pick_when(runtime, HomeChoice::Now),
        }
    }

    /// Makes a home as [`near_device`](Home::near_device) does, for the queues of `runtime`, near a device that
    /// [`Topology::near_device`](nearq_topology::Topology::near_device) has found.
    ///
    /// # Errors
    /// None of the device's nodes can be a home ([`Error::NoHome`], which names the usable nodes).
    pub fn near_device_in(runtime: &Runtime<P>, device: &NearDevice) -> Result<Self, Error> {
        let homes = runtime.homes_of();
        let all = homes.nodes();
        let Some(near) = all.near(&device.nodes) else {
            // The error is why it cannot be a home; `near` has found that none of them can.
            return Self::on_in(runtime, device.nodes.first().copied().unwrap_or_default());
        };
        let (index, why) = homes.pick(&near, P::current_cpu());
        let name = &device.name;
        let why = if near.is_single() {
            format!("{name} is near it")
        } else {
            format!("{name} is near several; {why}")
        };
        Ok(Self::make(homes, Some(near.get(index).id as u32), why))
    }
}
