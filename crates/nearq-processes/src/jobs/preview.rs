//! Shows which job would run at which home, without running any.

use std::io;
use std::ops::ControlFlow;

use nearq_home::{Load, pick};
use rustix::event::{PollFd, PollFlags, poll};

use super::input::Inputs;
use super::placement::Homes;
use super::template::Template;

/// The most slots that are distinguished, so that the memory for them is bounded.
const MOST_PLACES: usize = 65_536;

/// Calls `each` with every job's home and command, until `each` stops it. Homes are chosen as if nothing else ran and all jobs took equally
/// long, `width` of them at a time. Waits for inputs that have not arrived yet.
///
/// # Errors
/// The inputs cannot be read.
pub fn preview(
    template: &Template,
    mut inputs: Inputs,
    width: usize,
    homes: &Homes,
    mut each: impl FnMut(usize, Vec<u8>) -> ControlFlow<()>,
) -> io::Result<()> {
    let width = width.clamp(1, MOST_PLACES);
    let mut loads = vec![Load::default(); homes.nodes.len()];
    // The homes of the jobs that would be running, as a ring.
    let mut running: Vec<usize> = Vec::new();
    let mut begun = 0;
    loop {
        let Some(job) = inputs.take() else {
            if inputs.is_over() {
                return Ok(());
            }
            if let Some(input) = inputs.wanted() {
                // After an interruption, the loop only reads again.
                let _ = poll(&mut [PollFd::from_borrowed_fd(input, PollFlags::IN)], None);
            }
            inputs.fill()?;
            continue;
        };
        let slot = begun % width;
        if let Some(before) = running.get(slot) {
            loads[*before].homes -= 1000;
        }
        let home = homes.assigned(slot + 1).unwrap_or_else(|| pick(&homes.nodes, &loads, Some(0)));
        loads[home].homes += 1000;
        if slot < running.len() {
            running[slot] = home;
        } else {
            running.push(home);
        }
        begun += 1;
        if each(home, template.show(&job, inputs.number(), slot + 1)).is_break() {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jobs::Each;
    use nearq_home::{Nodes, Weights};
    use nearq_topology::Topology;

    #[test]
    fn homes_alternate_between_equal_nodes() {
        let machine = Topology::from_synthetic("numa:2 core:2").unwrap();
        let nodes = Nodes::of(&machine, machine.online());
        let mut homes = Homes {
            nodes,
            fixed: None,
            strict: false,
            weights: Weights::default(),
            slots: Vec::new(),
        };
        let template = Template::new(&["echo", "{}", "{%}"], 1, false).unwrap();
        let list = || (1..=5_u8).map(|number| vec![b'0' + number]).collect();
        let mut all = Vec::new();
        let mut note = |home: usize, line: Vec<u8>| {
            all.push((home, String::from_utf8(line).unwrap()));
            ControlFlow::Continue(())
        };
        preview(&template, Inputs::list(list(), Each::of(1)), 2, &homes, &mut note).unwrap();
        homes.fixed = Some(1);
        preview(&template, Inputs::list(list(), Each::of(3)), 2, &homes, &mut note).unwrap();
        let all: Vec<(usize, &str)> = all.iter().map(|(home, line)| (*home, &**line)).collect();
        let spread =
            [(0, "echo 1 1"), (1, "echo 2 2"), (0, "echo 3 1"), (1, "echo 4 2"), (0, "echo 5 1")];
        assert_eq!(all[..5], spread);
        assert_eq!(all[5..], [(1, "echo 1 2 3 1"), (1, "echo 4 5 2")]);
    }
}
