//! A TCP service that computes: `cargo run -p nearq-examples --bin service [ADDRESS [PLACES [SECONDS]]]`.
//!
//! tokio has the connections, nearq the CPU work. At most PLACES requests are queued or computed; others wait with their clients, in order.
//! The work of a client that leaves is cancelled. Ctrl-C stops accepting; requests may end within SECONDS; what still runs then is named.

use std::error::Error;
use std::time::Duration;

use nearq::{Bounded, CancelToken, Runtime, Workqueue};
use nearq_examples::service::{Client, Options};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::task::TaskTracker;

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::from_arguments()?;
    let queue = Workqueue::builder("hash").build()?;
    let places = queue.bounded(options.places);
    let (connections, stop) = (TaskTracker::new(), CancelToken::new());
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
        // The error has a line for each item that still runs.
        Runtime::global().shutdown(Duration::from_millis(100))?;
    }
    Ok(())
}

async fn serve(
    mut client: Client,
    places: Bounded,
    stop: CancelToken,
) -> Result<(), Box<dyn Error + Send + Sync>> {
    while let Some(request) = client.request(stop.cancelled()).await? {
        let answer = async {
            let task = places.reserve().await.spawn(move || {
                nearq::set_description(&request.to_string());
                request.run(nearq::is_cancelled)
            });
            task.cancel_on_drop().await
        };
        tokio::select! {
            answer = answer => client.answer(&answer?).await?,
            () = client.left() => break,
        }
    }
    Ok(())
}
