//! Threads that are not the runtime's: the hard form of a home, with which the system runs a thread nowhere else.

use core::marker::PhantomData;

use nearq_platform::{Linux, MemoryPolicy, Platform};
use nearq_topology::CpuSet;

use crate::base::error::Error;
use crate::homes::Home;
use crate::pool::context;

impl<P: Platform> Home<P> {
    /// Keeps the calling thread at home until the returned guard is dropped: it runs on the node's CPUs only, as far as its affinity allows
    /// them, and memory that it touches first comes from the node.
    ///
    /// Unlike the homes of items, this is **hard**: if the node's CPUs are busy, the thread waits, even if other CPUs are idle. Threads
    /// that it starts meanwhile inherit both the CPUs and the memory policy. If there is only one node, this does nothing. If the system
    /// refuses the memory policy, there is one warning.
    ///
    /// A machine-wide scheduler for home nodes (`nearq-scx`), if it is loaded, learns of this too, for this thread alone.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// use nearq::home::Home;
    ///
    /// let home = Home::pick()?;
    /// let table = std::thread::spawn(move || {
    ///     let _at_home = home.enter()?;
    ///     Ok::<_, nearq::Error>(vec![1_u8; 1 << 20])
    /// });
    /// assert_eq!(table.join().unwrap()?.len(), 1 << 20);
    /// # Ok::<(), nearq::Error>(())
    /// ```
    ///
    /// # Errors
    /// The thread may run on none of the node's CPUs ([`Error::MaskNotAllowed`]); or the system refuses to move it there
    /// ([`Error::Refused`]).
    pub fn enter(&self) -> Result<AtHome<P>, Error> {
        Ok(AtHome { before: self.move_thread()?, home: self.clone(), thread: PhantomData })
    }

    fn move_thread(&self) -> Result<Before, Error> {
        let homes = &self.inside().homes;
        let mut before = Before { affinity: None, memory: None, hinted: false };
        if !homes.has_several() {
            return Ok(before);
        }
        let nodes = homes.nodes();
        let node = nodes.get(nodes.index_of(self.inside().node() as usize).map_err(Error::NoHome)?);
        let me = P::current_thread();
        let affinity = P::affinity(me).map_err(Error::Refused)?;
        let cpus = node.cpus.intersection(&affinity);
        if cpus.is_empty() {
            return Err(Error::MaskNotAllowed { mask: node.cpus.clone(), allowed: affinity });
        }
        // Before the change: the runtime may read the process's affinity at any time.
        homes.note_entered(&cpus, &affinity);
        if let Err(refused) = P::set_affinity(me, &cpus) {
            homes.forget_entered(&affinity);
            return Err(Error::Refused(refused));
        }
        // If the thread was already confined to these CPUs, telling the scheduler is up to whatever confined it: that is left as it is.
        before.hinted = !affinity.is_subset(&node.cpus);
        before.affinity = Some(affinity);
        if before.hinted {
            P::set_home_hint(me, Some(node.id));
        }
        let policy = P::memory_policy().and_then(|policy| {
            P::set_memory_policy(&MemoryPolicy::Preferred(node.memory))?;
            Ok(policy)
        });
        match policy {
            Ok(policy) => before.memory = Some(policy),
            Err(refused) => crate::homes::warn_of_memory::<P>(&refused),
        }
        Ok(before)
    }
}

/// The thread's previous state; nothing for what was left alone.
#[derive(Debug)]
struct Before {
    affinity: Option<CpuSet>,
    memory: Option<MemoryPolicy>,
    /// Whether the system's scheduler was told of the home.
    hinted: bool,
}

/// Keeps the calling thread at home while it lives; returned by [`Home::enter`]. Drop the guards of one thread in the reverse order of
/// their creation.
#[must_use = "the thread is at home as long as this lives"]
#[derive(Debug)]
pub struct AtHome<P: Platform = Linux> {
    home: Home<P>,
    before: Before,
    /// Not `Send`: the guard belongs to the thread that made it.
    thread: PhantomData<*const ()>,
}

impl<P: Platform> AtHome<P> {
    /// Returns the home.
    pub fn home(&self) -> &Home<P> {
        &self.home
    }

    /// Keeps the thread at home until it ends, or until another guard of it is dropped. The home counts on its node for the life of the
    /// process.
    ///
    /// ```
    /// # use nearq_core as nearq;
    /// let worker = std::thread::spawn(|| {
    ///     nearq::home::Home::pick()?.enter()?.keep();
    ///     // Everything that this thread does from here on is at home.
    ///     Ok::<_, nearq::Error>(())
    /// });
    /// worker.join().unwrap()?;
    /// # Ok::<(), nearq::Error>(())
    /// ```
    pub fn keep(self) {
        core::mem::forget(self);
    }
}

impl<P: Platform> Drop for AtHome<P> {
    fn drop(&mut self) {
        if let Some(policy) = self.before.memory.take() {
            // The thread can have again what it had before.
            let _ = P::set_memory_policy(&policy);
        }
        if let Some(affinity) = self.before.affinity.take() {
            // Refused if all of it was taken away meanwhile; then the system has given the thread what there is.
            let _ = P::set_affinity(P::current_thread(), &affinity);
            self.home.inside().homes.forget_entered(&affinity);
        }
        if self.before.hinted {
            // A worker is at home with its pool again.
            let node = context::with_current::<P, _>(|context| context.pool.near_node()).flatten();
            P::set_home_hint(P::current_thread(), node.map(|node| node as usize));
        }
    }
}
