//! What the walls cost: the runtime's vertical slice through the platform, beside the same steps written by hand for
//! Linux. Instructions are counted by callgrind, which gives the same figure each time on any machine.

use crate::callgrind::{self, per_round};

/// How much more the platform may cost.
const MOST: f64 = 1.02;

/// Counts and compares.
pub(crate) fn check() -> Result<String, String> {
    if let Some(skipped) = callgrind::skipped("the slice")? {
        return Ok(skipped);
    }
    let program = callgrind::build("nearq-core", "slice_cost", "slice")?;
    let platform = per_round(&program, "platform")?;
    let hand = per_round(&program, "hand")?;
    let ratio = platform / hand;
    let text = format!(
        "instructions per round: {platform:.1} through the platform, {hand:.1} by hand, {ratio:.4} times as many"
    );
    if ratio > MOST { Err(format!("{text}; at most {MOST} is allowed")) } else { Ok(text) }
}
