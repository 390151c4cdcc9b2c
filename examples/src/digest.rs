//! The CPU work of `service` and `deliver`: SHA-256, applied again and again.

use std::fmt::Write as _;

use sha2::{Digest as _, Sha256};

/// After how many rounds the caller is asked whether to go on: some tens of microseconds.
const ROUNDS_AT_ONCE: u64 = 256;

/// The bytes in hexadecimal.
pub(crate) fn hexadecimal(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("a string takes everything");
        text
    })
}

/// The SHA-256 of the text, of which the SHA-256 is taken, and so on, for that many rounds. Nothing if `is_cancelled` before the end.
pub(crate) fn digest(text: &str, rounds: u64, is_cancelled: impl Fn() -> bool) -> Option<String> {
    let mut digest = Sha256::digest(text);
    for round in 1..rounds {
        if round % ROUNDS_AT_ONCE == 0 && is_cancelled() {
            return None;
        }
        digest = Sha256::digest(digest);
    }
    Some(hexadecimal(digest))
}
