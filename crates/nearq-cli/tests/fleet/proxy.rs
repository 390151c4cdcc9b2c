//! A network that can be cut: a TCP proxy in this process.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Passes connections on to a port of this machine, until it is cut.
pub(crate) struct Proxy {
    pub(crate) port: u16,
    state: Arc<State>,
}

#[derive(Default)]
struct State {
    /// Whether nothing passes. SeqCst here and below: a test, and no speed matters.
    is_cut: AtomicBool,
    /// How often it was cut: connections of before are dead.
    cuts: AtomicU64,
    open: Mutex<Vec<TcpStream>>,
}

impl Proxy {
    pub(crate) fn to(port: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let state = Arc::new(State::default());
        let of_thread = Arc::clone(&state);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                let cuts = of_thread.cuts.load(Ordering::SeqCst);
                of_thread
                    .open
                    .lock()
                    .unwrap()
                    .extend([client.try_clone().unwrap(), server.try_clone().unwrap()]);
                for (from, to) in
                    [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
                {
                    let state = Arc::clone(&of_thread);
                    thread::spawn(move || pass(from, to, &state, cuts));
                }
            }
        });
        Self { port: own, state }
    }

    /// Swallows everything for that long, in both directions and without a word; then resets the connections.
    pub(crate) fn cut(&self, time: Duration) {
        self.state.is_cut.store(true, Ordering::SeqCst);
        thread::sleep(time);
        self.state.cuts.fetch_add(1, Ordering::SeqCst);
        for open in self.state.open.lock().unwrap().drain(..) {
            let _ = open.shutdown(Shutdown::Both);
        }
        self.state.is_cut.store(false, Ordering::SeqCst);
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, state: &State, cuts: u64) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let is_lost =
            state.is_cut.load(Ordering::SeqCst) || state.cuts.load(Ordering::SeqCst) != cuts;
        if !is_lost && to.write_all(&buffer[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
    let _ = from.shutdown(Shutdown::Both);
}
