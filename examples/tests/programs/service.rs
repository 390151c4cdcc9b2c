//! `service`: answers, back-pressure, clients that leave, and Ctrl-C; with sockets and signals.

use std::io::{BufRead as _, BufReader, ErrorKind, Write as _};
use std::net::TcpStream;

use crate::common::{From, LONG, Program};

const SERVICE: [&str; 2] =
    [env!("CARGO_BIN_EXE_service"), env!("CARGO_BIN_EXE_service_with_tokio")];

/// What no machine computes in time.
const NEVER: u64 = u64::MAX;
/// The SHA-256 of `abc`, as published, and its SHA-256.
const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
const ABC_TWICE: &str = "4f8b42c22dd3729b519ba6f68d2da7cc5b2d606d05daed5ad5128cc03e6c6358";

/// The service, and the address on which it listens.
fn start(path: &str, places: &str, seconds: &str) -> (Program, String) {
    let mut program = Program::start(path, &["127.0.0.1:0", places, seconds]);
    let address = program.until(From::Output, "listening on ");
    (program, address)
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    fn write(&mut self, text: &str) {
        self.0.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn ask(&mut self, rounds: u64, text: &str) {
        self.write(&format!("hash {rounds} {text}\n"));
    }

    /// The next answer; an empty line if the connection is closed.
    fn answer(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }
}

#[test]
fn requests_are_answered_in_their_order() {
    for path in SERVICE {
        let (_program, address) = start(path, "2", "60");
        let mut client = Client::connect(&address);
        client.write("hash 1 abc\nhash 2 abc\r\nhash many abc\nhash 1\n\nhash 1 a");
        assert_eq!([client.answer(), client.answer()], [ABC, ABC_TWICE], "{path}");
        for _ in 0..3 {
            assert_eq!(client.answer(), "error: a request is: hash ROUNDS TEXT", "{path}");
        }
        client.write("bc\n");
        assert_eq!(client.answer(), ABC, "{path}");
    }
}

#[test]
fn a_line_that_is_too_long_ends_the_connection() {
    for path in SERVICE {
        let (_program, address) = start(path, "2", "60");
        let mut client = Client::connect(&address);
        client.write(&"x".repeat(4096));
        assert_eq!(client.answer(), "error: a line has at most 4096 bytes", "{path}");
        assert_eq!(client.answer(), "", "{path}");
    }
}

#[test]
fn a_client_that_leaves_gives_its_place_to_the_next() {
    for path in SERVICE {
        let (mut program, address) = start(path, "1", "60");
        let (mut first, mut second) = (Client::connect(&address), Client::connect(&address));
        first.ask(NEVER, "first");
        program.until(From::Output, "begins hash 18446744073709551615 \"first\"");
        second.ask(1, "abc");
        program.until(From::Output, "received hash 1 \"abc\"");
        // Only now: without a bound, the second request would not have waited.
        drop(first);
        program.until(From::Output, "cancelled hash 18446744073709551615 \"first\"");
        program.until(From::Output, "begins hash 1 \"abc\"");
        assert_eq!(second.answer(), ABC, "{path}");
    }
}

#[test]
fn a_client_that_leaves_while_it_waits_for_a_place_is_forgotten() {
    for path in SERVICE {
        let (mut program, address) = start(path, "1", "60");
        let [mut first, mut second, mut third] = [0; 3].map(|_| Client::connect(&address));
        first.ask(NEVER, "first");
        program.until(From::Output, "begins ");
        second.ask(NEVER, "second");
        program.until(From::Output, "received ");
        third.ask(1, "abc");
        program.until(From::Output, "received ");
        drop(second);
        program.until(From::Output, "a client has left");
        drop(first);
        assert_eq!(third.answer(), ABC, "{path}");
        program.until(From::Output, "ends ");
        let second = "begins hash 18446744073709551615 \"second\"";
        assert!(!program.seen(From::Output).contains(&second), "{path}");
    }
}

#[test]
fn at_ctrl_c_a_request_ends_and_is_answered() {
    for path in SERVICE {
        // If it ends before the signal has arrived, a longer one is tried.
        let answered_after_the_signal = (20..40).any(|power| {
            let (mut program, address) = start(path, "1", "600");
            let (mut client, mut idle) = (Client::connect(&address), Client::connect(&address));
            client.ask(1 << power, "abc");
            program.until(From::Output, "begins ");
            program.interrupt();
            program.until(From::Output, "stopping");
            let refused = TcpStream::connect(&address).map(drop).map_err(|error| error.kind());
            // Both end, each after its request.
            assert_eq!(client.answer().len(), 64, "{path}");
            assert_eq!([client.answer(), idle.answer()], ["", ""], "{path}");
            assert_eq!(program.end().code(), Some(0), "{path}");
            let output = program.seen(From::Output);
            let place = |what| output.iter().position(|line| line.starts_with(what)).expect(what);
            let is_in_time = place("stopping") < place("ends ");
            assert!(
                !is_in_time || refused == Err(ErrorKind::ConnectionRefused),
                "{path}: {refused:?}"
            );
            is_in_time
        });
        assert!(answered_after_the_signal, "{path}");
    }
}

#[test]
fn what_still_runs_when_the_time_is_over_is_named_and_delays_nothing() {
    for path in SERVICE {
        let (mut program, address) = start(path, "2", "0.05");
        let mut clients = [Client::connect(&address), Client::connect(&address)];
        for client in &mut clients {
            client.ask(NEVER, "still here");
            program.until(From::Output, "begins ");
        }
        program.interrupt();
        assert_eq!(program.end().code(), Some(1), "{path}");
        let errors = program.seen(From::Errors).join("\n");
        if path == SERVICE[0] {
            let named = errors.lines().filter(|line| {
                line.contains("workqueue `hash`: service::serve")
                    && line.contains(": hash 1844674407370955")
            });
            assert_eq!(named.count(), 2, "{errors}");
        } else {
            assert_eq!(errors, "2 requests still run");
        }
    }
}

#[test]
fn a_number_that_is_not_possible_is_an_error() {
    for path in SERVICE {
        for arguments in
            [["127.0.0.1:0", "0", "1"], ["127.0.0.1:0", "1", "-1"], ["nowhere", "1", "1"]]
        {
            assert_eq!(Program::start(path, &arguments).end().code(), Some(1), "{path}");
        }
    }
}
