//! What would be run where, without running it.

use std::io;

use nearq_home::{Load, pick};

use super::input::Inputs;
use super::placement::Homes;
use super::template::Template;

/// Calls `each` with every job's home and command. Homes are as if nothing else ran and jobs took equally long, `width` of them at a
/// time. Waits for inputs that are still to come.
///
/// # Errors
/// The inputs cannot be read.
pub fn preview(
    template: &Template,
    mut inputs: Inputs,
    width: usize,
    homes: &Homes,
    mut each: impl FnMut(usize, Vec<u8>),
) -> io::Result<()> {
    let width = width.max(1);
    let mut loads = vec![Load::default(); homes.nodes.len()];
    // The homes of the jobs that would be running, as a ring.
    let mut running: Vec<usize> = Vec::new();
    let mut number = 0;
    loop {
        let Some(job) = inputs.take() else {
            if inputs.is_over() {
                return Ok(());
            }
            inputs.fill()?;
            continue;
        };
        let place = number % width;
        if let Some(before) = running.get(place) {
            loads[*before].homes -= 1000;
        }
        let home = homes.fixed.unwrap_or_else(|| pick(&homes.nodes, &loads, Some(0)));
        loads[home].homes += 1000;
        if place < running.len() {
            running[place] = home;
        } else {
            running.push(home);
        }
        number += 1;
        each(home, template.show(&job, number as u64, place + 1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nearq_home::{Nodes, Weights};
    use nearq_topology::Topology;

    #[test]
    fn homes_alternate_where_nodes_are_equal() {
        let machine = Topology::from_synthetic("numa:2 core:2").unwrap();
        let nodes = Nodes::of(&machine, machine.online());
        let mut homes = Homes { nodes, fixed: None, strict: false, weights: Weights::default() };
        let template = Template::new(&["echo", "{}", "{%}"], 1, false).unwrap();
        let list = || (1..=5_u8).map(|number| vec![b'0' + number]).collect();
        let mut all = Vec::new();
        let mut note =
            |home: usize, line: Vec<u8>| all.push((home, String::from_utf8(line).unwrap()));
        preview(&template, Inputs::list(list(), 1), 2, &homes, &mut note).unwrap();
        homes.fixed = Some(1);
        preview(&template, Inputs::list(list(), 3), 2, &homes, &mut note).unwrap();
        let all: Vec<(usize, &str)> = all.iter().map(|(home, line)| (*home, &**line)).collect();
        let spread =
            [(0, "echo 1 1"), (1, "echo 2 2"), (0, "echo 3 1"), (1, "echo 4 2"), (0, "echo 5 1")];
        assert_eq!(all[..5], spread);
        assert_eq!(all[5..], [(1, "echo 1 2 3 1"), (1, "echo 4 5 2")]);
    }
}
