//! `service` on tokio alone. The blocking pool has no queue with a limit, so a semaphore stands before it. It does not say what still runs.

use std::error::Error;
use std::sync::Arc;

use nearq_examples::service::{Client, Options};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_arguments()?;
    let places = Arc::new(Semaphore::new(options.places));
    let (connections, stop) = (TaskTracker::new(), CancellationToken::new());
    let mut interrupt = signal(SignalKind::interrupt())?;
    let listener = options.listen().await?;
    loop {
        tokio::select! {
            client = listener.accept() => {
                connections.spawn(serve(client, places.clone(), stop.clone()));
            }
            _ = interrupt.recv() => break,
        }
    }
    drop(listener);
    println!("stopping");
    stop.cancel();
    connections.close();
    if tokio::time::timeout(options.deadline, connections.wait()).await.is_err() {
        eprintln!("{} requests still run", options.places - places.available_permits());
        // A return would wait for them.
        std::process::exit(1);
    }
    Ok(())
}

async fn serve(
    mut client: Client,
    places: Arc<Semaphore>,
    stop: CancellationToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    while let Some(request) = client.request(stop.cancelled()).await? {
        let answer = async {
            let place = places.clone().acquire_owned().await?;
            let cancelled = CancellationToken::new();
            let _guard = cancelled.clone().drop_guard();
            let task = tokio::task::spawn_blocking(move || {
                let _place = place;
                request.run(|| cancelled.is_cancelled())
            });
            Ok::<_, Box<dyn Error + Send + Sync>>(task.await?)
        };
        tokio::select! {
            answer = answer => client.answer(&answer?).await?,
            () = client.left() => break,
        }
    }
    Ok(())
}
