//! `deliver` on tokio. Retries are a loop, and no attempt needs a thread. All work has the same priority.

use std::error::Error;
use std::sync::Arc;
use std::thread;

use nearq_examples::delivery::{self, Command, Delivery, Next};
use tokio::runtime::Handle;
use tokio::sync::{RwLock, Semaphore, mpsc};
use tokio::task::{JoinError, JoinHandle, spawn_blocking};
use tokio::time::sleep;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let places = Arc::new(Semaphore::new(thread::available_parallelism()?.get()));
    // Each attempt reads it; a pause writes it.
    let running = Arc::new(RwLock::new(()));
    let (handle, paused) = (Handle::current(), running.clone());
    thread::spawn(move || handle.block_on(obey(paused)));
    let (sender, mut receiver) = mpsc::channel::<JoinHandle<_>>(delivery::UNDER_WAY);
    let log = tokio::spawn(async move {
        while let Some(task) = receiver.recv().await {
            delivery::log(task.await.flatten());
        }
    });
    // Reading may block this thread, on which nothing else runs.
    for delivery in delivery::deliveries()? {
        let task = deliver(delivery?, running.clone(), places.clone());
        sender.send(tokio::spawn(task)).await?;
    }
    drop(sender);
    Ok(log.await?)
}

/// Makes attempts until there is an outcome.
async fn deliver(
    mut delivery: Delivery,
    running: Arc<RwLock<()>>,
    places: Arc<Semaphore>,
) -> Result<String, JoinError> {
    let place = places.acquire_owned().await.expect("it is never closed");
    let prepare = move || {
        let _place = place;
        delivery.prepare();
        delivery
    };
    let mut delivery = spawn_blocking(prepare).await?;
    loop {
        let attempt = {
            let _running = running.read().await;
            delivery.attempt_on_tokio().await
        };
        match attempt {
            Next::Log(line) => return Ok(line),
            Next::Retry(delay) => sleep(delay).await,
        }
    }
}

async fn obey(running: Arc<RwLock<()>>) {
    let mut paused = None;
    for command in delivery::commands() {
        match command {
            Command::Status => delivery::report("status"),
            Command::Pause => {
                if paused.is_none() {
                    paused = Some(running.clone().write_owned().await);
                }
                delivery::report("paused");
            }
            Command::Resume => {
                paused = None;
                delivery::report("resumed");
            }
        }
    }
}
