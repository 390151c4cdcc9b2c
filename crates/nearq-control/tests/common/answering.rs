//! Properties of a client that must hold whatever answer it gets, for the fuzzer and for the tests beside it.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use nearq_control::client::{Client, ClientError};
use nearq_control::protocol::{
    GetDump, GetProcess, GetSettings, GetStatistics, Keep, Request, Set, Trace,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The number of bytes that fit into a socket without a thread that reads.
const MOST: usize = 64 << 10;

/// The first byte selects the call; the other bytes are the answer.
pub(crate) fn check(bytes: &[u8]) {
    let Some((&asked, answered)) = bytes.split_first() else { return };
    match asked {
        b'p' => once(&GetProcess {}, answered),
        b's' => once(&GetStatistics::default(), answered),
        b'd' => once(&GetDump::default(), answered),
        b'g' => once(&GetSettings::default(), answered),
        b'k' => once(&Keep {}, answered),
        b't' => many(&Trace::default(), answered),
        _ => once(&Set::default(), answered),
    }
}

/// A client to which everything that it will read has already been sent.
fn client(answered: &[u8]) -> Client {
    let (client_end, mut other) = UnixStream::pair().expect("two descriptors");
    other.write_all(&answered[..answered.len().min(MOST)]).expect("it fits");
    other.shutdown(Shutdown::Write).expect("it is connected");
    // Something must read the calls until the client is done.
    std::thread::spawn(move || other.read_to_end(&mut Vec::new()));
    let mut client = Client::over(client_end).expect("it is connected");
    client.set_patience(Duration::from_mins(1));
    client
}

fn once<R: Request>(request: &R, answered: &[u8])
where
    R::Reply: Serialize + DeserializeOwned,
{
    let mut client = client(answered);
    match client.call(request) {
        Ok(reply) => check_round_trip::<R>(&reply),
        Err(error) => refused(&error),
    }
    // Either the next answer is read, or the connection is reported unusable.
    match client.call(request) {
        Ok(reply) => check_round_trip::<R>(&reply),
        Err(error) => refused(&error),
    }
}

fn many<R: Request>(request: &R, answered: &[u8])
where
    R::Reply: Serialize + DeserializeOwned,
{
    let replies = client(answered).stream(request).expect("it is sent");
    let mut ends = false;
    for reply in replies {
        assert!(!ends, "nothing comes after an error");
        match reply {
            Ok(reply) => check_round_trip::<R>(&reply),
            Err(error) => {
                refused(&error);
                ends = true;
            }
        }
    }
}

/// A parsed answer can be serialised, and is then parsed to the same value.
fn check_round_trip<R: Request>(reply: &R::Reply)
where
    R::Reply: Serialize + DeserializeOwned,
{
    let json = serde_json::to_string(reply).expect("an answer is JSON");
    let again: R::Reply = serde_json::from_str(&json).expect("an answer can be parsed again");
    assert_eq!(json, serde_json::to_string(&again).expect("an answer is JSON"));
    #[cfg(feature = "metrics")]
    if let Ok(reply) = serde_json::from_str::<nearq_control::protocol::StatisticsReply>(&json) {
        metrics(reply.statistics);
    }
}

/// Whatever a process counts, and whatever it calls its queues, each line of its metrics stays one
/// line.
#[cfg(feature = "metrics")]
fn metrics(statistics: nearq_control::protocol::Statistics) {
    let text = nearq_control::metrics::text(statistics, vec![("command", "a\"b".to_owned())]);
    assert!(text.ends_with("# EOF\n"), "{text}");
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let value = line.rsplit(' ').next().expect("a line has a value");
        assert!(value.parse::<f64>().is_ok(), "{line:?}");
        assert!(!line.contains(char::is_control), "{line:?}");
    }
}

fn refused(error: &ClientError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() < 4096, "{} bytes: {text}", text.len());
}
