//! The other pools as contestants, each in its usual way of use. They are Linux programs.

use super::contestant::{Contestant, Plan, Pool};
use super::items::Items;
use crate::Error;
use crate::peers::{AsyncExecutor, Peer, Rayon, ThreadPool, Tokio};
use nearq_platform::Linux;
use std::marker::PhantomData;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::task::block_in_place;

/// A pool of closures that cannot be told anything of blocking.
struct Closures<Q>(PhantomData<fn() -> Q>);

impl<Q: Peer> Contestant<Linux> for Closures<Q> {
    fn row(&self) -> &'static str {
        Q::NAME
    }

    fn always(&self) -> bool {
        false
    }

    fn start(&self, plan: &Plan) -> Result<Box<dyn Pool<Linux>>, Error> {
        Ok(Box::new(Started(Q::start(plan.workers)?)))
    }
}

struct Started<Q>(Q);

impl<Q: Peer> Pool<Linux> for Started<Q> {
    fn issue(&self, items: &Arc<Items<Linux>>, number: usize) {
        let items = Arc::clone(items);
        self.0.detach(move || items.run(number));
    }
}

/// What tokio can be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// Nothing, so everything is run where blocking is allowed, on up to 512 threads.
    Nothing,
    /// Beforehand, which items block: those alone are run there.
    Which,
    /// In the item, what blocks: the worker hands its tasks to another thread meanwhile.
    Where,
}

struct TokioTold(Told);

impl Contestant<Linux> for TokioTold {
    fn row(&self) -> &'static str {
        match self.0 {
            Told::Nothing => "tokio spawn_blocking, all",
            Told::Which => "tokio spawn_blocking, sleepers",
            Told::Where => "tokio block_in_place",
        }
    }

    fn always(&self) -> bool {
        true
    }

    fn start(&self, plan: &Plan) -> Result<Box<dyn Pool<Linux>>, Error> {
        let runtime = Builder::new_multi_thread().worker_threads(plan.workers).build();
        let runtime = runtime
            .map_err(|error| Error::run(format!("tokio cannot start its threads: {error}")))?;
        Ok(Box::new(TokioPool { runtime, told: self.0 }))
    }
}

struct TokioPool {
    runtime: Runtime,
    told: Told,
}

impl Pool<Linux> for TokioPool {
    fn issue(&self, items: &Arc<Items<Linux>>, number: usize) {
        let items = Arc::clone(items);
        let blocks = items.blocks(number);
        match self.told {
            Told::Nothing => drop(self.runtime.spawn_blocking(move || items.run(number))),
            Told::Which if blocks => {
                drop(self.runtime.spawn_blocking(move || items.run(number)));
            }
            Told::Where if blocks => drop(self.runtime.spawn(async move {
                items.run_around(number, |block| block_in_place(block));
            })),
            Told::Which | Told::Where => {
                drop(self.runtime.spawn(async move { items.run(number) }));
            }
        }
    }
}

/// All of them, in the order of the tables.
pub fn others() -> Vec<Box<dyn Contestant<Linux> + Sync>> {
    vec![
        Box::new(Closures::<Rayon>(PhantomData)),
        Box::new(Closures::<Tokio>(PhantomData)),
        Box::new(Closures::<AsyncExecutor>(PhantomData)),
        Box::new(Closures::<ThreadPool>(PhantomData)),
        Box::new(TokioTold(Told::Nothing)),
        Box::new(TokioTold(Told::Which)),
        Box::new(TokioTold(Told::Where)),
    ]
}
