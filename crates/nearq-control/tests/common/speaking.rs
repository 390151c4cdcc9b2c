//! Properties of the server's answers that must hold whatever is sent, for the fuzzer and for the tests beside it.

use nearq_control::protocol::Access;
use nearq_control::server::converse;
use serde_json::Value;

use super::Shared;

/// Sends the bytes in pieces of these lengths, which are repeated, and checks the answers.
pub(crate) fn check(sent: &[u8], lengths: &[usize]) {
    let shared = Shared::new();
    let answers = converse(shared.target(), Access::Full, pieces(sent, lengths));
    let whole = converse(Shared::new().target(), Access::Full, [sent]);
    // The age of the server is part of an answer.
    if !contains(sent, b"GetProcess")
        && !contains(sent, b"GetStatistics")
        && !contains(sent, b"\\u")
    {
        assert_eq!(answers, whole, "the answers depend on how the call was split");
    }
    let mut messages = answers.split(|&byte| byte == 0).peekable();
    let mut count = 0;
    while let Some(message) = messages.next() {
        if messages.peek().is_none() {
            assert!(message.is_empty(), "an answer does not end");
            break;
        }
        check_message(message);
        count += 1;
    }
    let calls = sent.split(|&byte| byte == 0).count() - 1;
    // A call that is too long is answered although it has no end.
    assert!(count <= calls + 1, "{count} answers to {calls} calls");
    let world = shared.world();
    assert!(!world.timing, "items are still timed");
    assert_eq!(world.traces, 0, "a trace was not closed");
}

fn check_message(message: &[u8]) {
    let value: Value = serde_json::from_slice(message).expect("an answer is JSON");
    let object = value.as_object().expect("an answer is an object");
    assert!(object["parameters"].is_object());
    if let Some(error) = object.get("error") {
        let error = error.as_str().expect("an error has a name");
        let known = ["org.varlink.service.", "nearq.control1."];
        assert!(known.iter().any(|interface| error.starts_with(interface)), "{error}");
    }
}

fn contains(bytes: &[u8], part: &[u8]) -> bool {
    bytes.windows(part.len()).any(|window| window == part)
}

fn pieces<'a>(mut sent: &'a [u8], lengths: &[usize]) -> Vec<&'a [u8]> {
    let mut pieces = Vec::new();
    for &length in lengths.iter().cycle().filter(|length| **length > 0) {
        if sent.is_empty() || pieces.len() > 10_000 {
            break;
        }
        let (piece, rest) = sent.split_at(length.min(sent.len()));
        pieces.push(piece);
        sent = rest;
    }
    pieces.push(sent);
    pieces
}
