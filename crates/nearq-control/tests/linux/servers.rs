//! Hostile or slow servers: a client keeps to its time limit and its other limits.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{GetDump, GetProcess, GetStatistics, Trace};

/// A slow server ends by itself after this time, so that a client that fails to time out does not hang for ever.
const LONG: Duration = Duration::from_secs(3);
const SHORT: Duration = Duration::from_millis(100);

/// A client of a server that sends these bytes, pausing after each piece, and then nothing more.
fn client_of(pieces: impl Iterator<Item = Vec<u8>> + Send + 'static, pause: Duration) -> Client {
    let (client_end, mut other) = UnixStream::pair().unwrap();
    thread::spawn(move || {
        for piece in pieces {
            if other.write_all(&piece).is_err() {
                return;
            }
            thread::sleep(pause);
        }
        let _ = other.shutdown(Shutdown::Write);
        let _ = other.read_to_end(&mut Vec::new());
    });
    Client::over(client_end).unwrap()
}

fn is_late<T>(result: Result<T, ClientError>) -> bool {
    matches!(result, Err(ClientError::Io(error)) if error.kind() == ErrorKind::TimedOut)
}

#[test]
fn a_trickle_of_bytes_is_no_answer() {
    let pause = Duration::from_millis(20);
    let count = (LONG.as_millis() / pause.as_millis()) as usize;
    let mut client = client_of((0..count).map(|_| b" ".to_vec()), pause);
    client.set_patience(SHORT);
    assert!(is_late(client.call(&GetProcess {})));
    // The next bytes may be the rest of that answer.
    let error = client.call(&GetProcess {}).unwrap_err();
    assert!(error.to_string().contains("connect again"), "{error}");
}

#[test]
fn an_answer_is_read_up_to_its_limit() {
    let mut client = client_of(std::iter::repeat_with(|| vec![b' '; 1 << 20]), Duration::ZERO);
    let error = client.call(&GetProcess {}).unwrap_err();
    assert!(matches!(error, ClientError::TooLong { .. }), "{error}");
    let mut client = client_of(std::iter::repeat_with(|| vec![b' '; 1 << 20]), Duration::ZERO);
    let error = client.call(&GetStatistics::default()).unwrap_err();
    assert!(matches!(error, ClientError::TooLong { most } if most == 64 << 20), "{error}");
    // An answer that fits the limit for refusals, but is not one.
    let mut long = b"{\"parameters\":{}}".to_vec();
    long.resize(1 << 20, b' ');
    long.push(0);
    let error = client_of([long].into_iter(), Duration::ZERO).call(&GetProcess {}).unwrap_err();
    assert!(matches!(error, ClientError::TooLong { most } if most == 64 << 10), "{error}");
}

#[test]
fn garbage_is_reported_in_a_short_error() {
    let open = |count: usize| [b"{\"parameters\":".to_vec(), vec![b'['; count]].concat();
    for mut bytes in [open(1 << 20), open(100), vec![0xff; 1000], b"{\"parameters\":7}".to_vec()] {
        bytes.push(0);
        let error =
            client_of([bytes].into_iter(), Duration::ZERO).call(&GetDump::default()).unwrap_err();
        assert!(matches!(error, ClientError::Garbled(_)), "{error}");
        assert!(error.to_string().len() < 1000, "{error}");
    }
    let name = "x".repeat(1 << 20);
    let bytes = format!("{{\"error\":\"{name}\",\"parameters\":{{}}}}\0").into_bytes();
    let error =
        client_of([bytes].into_iter(), Duration::ZERO).call(&GetDump::default()).unwrap_err();
    assert!(matches!(&error, ClientError::Protocol(text) if text.len() < 1000), "{error}");
}

/// A client of a server that sends the bytes given here.
fn scripted_client() -> (Client, std::sync::mpsc::Sender<&'static str>) {
    let (sender, lines): (_, Receiver<&'static str>) = channel();
    (client_of(lines.into_iter().map(|line| line.as_bytes().to_vec()), Duration::ZERO), sender)
}

#[test]
fn a_trace_and_its_lines_must_arrive_in_time() {
    const EMPTY: &str = "{\"parameters\":{\"queues\":[],\"events\":[],\"dropped\":0,\"every\":1},\"continues\":true}\0";
    let (mut client, _silent) = scripted_client();
    client.set_patience(SHORT);
    assert!(is_late(client.stream(&Trace::default()).unwrap().next().unwrap()));

    let (mut client, lines) = scripted_client();
    client.set_patience(SHORT);
    lines.send(EMPTY).unwrap();
    let mut batches = client.stream(&Trace::default()).unwrap();
    batches.next().unwrap().unwrap();
    // Wait without any event for longer than an answer may take.
    let later = lines.clone();
    thread::spawn(move || {
        thread::sleep(SHORT * 3);
        let _ = later.send(EMPTY);
    });
    batches.next().unwrap().unwrap();
    lines.send("{").unwrap();
    assert!(is_late(batches.next().unwrap()));
    assert!(batches.next().is_none());
}
