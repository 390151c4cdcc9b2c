//! The table: claims, corrections, members that write nonsense, and members that are killed in the middle.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nearq_home::{Load, Nodes};

use super::*;
use crate::system;

fn nodes(count: usize) -> Nodes {
    let places: Vec<_> =
        (0..count).map(|node| (node, (4 * node..4 * node + 4).collect())).collect();
    let row = |from: usize| (0..count).map(|to| 10 + 10 * from.abs_diff(to) as u32).collect();
    Nodes::pretended(&places, &(0..count).map(row).collect::<Vec<_>>())
}

fn table(homes: usize, entries: usize) -> Table {
    let nodes = nodes(homes);
    Table::with_entries(&nodes, &nodes.cpus(), true, entries).unwrap()
}

fn given(table: &Table) -> Vec<u32> {
    let view = table.view();
    (0..view.layout().homes()).map(|home| view.given(home)).collect()
}

#[test]
fn homes_are_given_evenly_starting_with_the_nearest() {
    let table = table(3, 64);
    let view = table.view();
    let homes: Vec<usize> = (1..=6)
        .map(|pid| member::choose(&view, pid, How::Exec, 5, Some(2)).unwrap().home)
        .collect();
    assert_eq!(homes, [2, 1, 0, 2, 1, 0]);
    assert_eq!(given(&table), [2, 2, 2]);
    // A process that executes another program does not avoid itself.
    let again = member::choose(&view, 4, How::Exec, 6, Some(2)).unwrap();
    assert_eq!(again.home, 2);
    assert_eq!(given(&table), [2, 2, 2]);
    table.publish(&[Load::default(), Load { homes: 0, others: 5000 }, Load::default()]);
    assert_eq!(
        member::choose(&view, 9, How::Exec, 7, Some(1)).unwrap().home,
        0,
        "tasks without a home count"
    );
}

#[test]
fn written_entries_can_be_found() {
    let table = table(2, 64);
    let view = table.view();
    let claim = member::choose(&view, 4711, How::Fork, 99, None).unwrap();
    let entry = Entry { pid: 4711, home: claim.home, how: How::Fork, state: State::Home };
    assert_eq!(view.entries().collect::<Vec<_>>(), [(claim.slot, entry, 99)]);
    assert!(table.set_state(claim.slot, entry, State::Out));
    assert!(!table.set_state(claim.slot, entry, State::Own), "the entry has changed");
    assert!(table.note(4711, State::Own) && !table.note(4712, State::Own));
    assert_eq!(view.entry(claim.slot).unwrap().0, Entry { state: State::Own, ..entry });
    assert!(!member::release(&view, claim.slot, 4712), "the entry belongs to another process");
    assert!(member::release(&view, claim.slot, 4711));
    assert!(!member::release(&view, claim.slot, 4711));
    assert_eq!(given(&table), [0, 0]);
    assert_eq!((view.distance(0, 1), view.capacity(1), view.memory(1)), (20, 4000, 1));
    assert!(
        member::is_of_whole_homes(&view, &[0xf0]) && !member::is_of_whole_homes(&view, &[0x70])
    );
    assert_eq!((member::home_of_cpu(&view, 5), member::home_of_cpu(&view, 8)), (Some(1), None));
}

#[test]
fn a_full_table_has_no_home_for_more() {
    let table = table(2, 128);
    for pid in 1..=128 {
        assert!(table.claim_for(pid, 0), "{pid}");
    }
    assert!(!table.claim_for(1000, 0));
    assert_eq!((table.counts().full, given(&table)), (1, vec![128, 0]));
    assert!(table.release(64) && table.claim_for(192, 1), "a place that became free");
    assert!(table.claim_for(7, 1), "a member can change its home");
    assert_eq!(given(&table), [126, 2]);
    assert!(!table.claim_for(7, 2), "there is no such home");
    assert!(!table.claim_for(0, 1), "0 is not a process number");
}

#[test]
fn lost_counts_are_corrected() {
    let table = table(2, 64);
    table.claim_for(1, 0);
    table.view().correct(0, 7);
    table.view().correct(1, -3);
    assert_eq!(given(&table), [8, 0]);
    table.publish(&[Load::default(); 2]);
    assert_eq!(given(&table), [1, 0]);
}

#[test]
fn garbage_in_the_table_does_no_harm() {
    let mut random = fastrand::Rng::with_seed(2003);
    for round in 0..200 {
        let table = table(3, 64);
        let words: &[AtomicU64] = table.words();
        for _ in 0..random.usize(1..400) {
            let word = match random.u8(0..4) {
                0 => random.u64(..),
                1 => u64::MAX,
                2 => 1 << random.u32(0..64),
                _ => Entry {
                    pid: random.u32(..),
                    home: random.usize(0..4),
                    how: How::Exec,
                    state: State::Out,
                }
                .to_word(),
            };
            words[random.usize(0..words.len())].store(word, Ordering::Relaxed);
        }
        // nearq uses the layout that it knows, members the layout that they read.
        for view in [Some(table.view()), View::of(words, None)].into_iter().flatten() {
            for pid in 1..40 {
                if let Some(claim) = member::choose(&view, pid, How::Exec, 1, Some(pid as usize)) {
                    assert!(
                        claim.home < view.layout().homes() && claim.slot < view.layout().entries()
                    );
                    member::release(&view, claim.slot, pid);
                }
                member::entry_of(&view, pid);
                member::home_of_cpu(&view, pid as usize * 100);
                member::is_of_whole_homes(&view, &[u64::MAX; 3]);
            }
            assert!(view.entries().all(|(_, entry, _)| entry.home < view.layout().homes()));
        }
        table.publish(&[Load { homes: 0, others: u32::MAX }; 3]);
        table.release(random.u32(..));
        let _ = (table.counts(), round);
    }
}

#[test]
fn invalid_tables_are_rejected() {
    let words: Vec<AtomicU64> = (0..100).map(AtomicU64::new).collect();
    assert!(View::of(&words, None).is_none() && View::of(&[], None).is_none());
    let table = table(2, 64);
    assert!(View::of(table.words(), Some(table.token())).is_some());
    assert!(View::of(table.words(), Some(table.token() ^ 1)).is_none(), "a table of another tree");
    assert!(View::of(&table.words()[..50], None).is_none(), "a table that is too short");
    let too_many = Table::with_entries(&nodes(2), &nodes(2).cpus(), true, 100).unwrap_err();
    assert!(too_many.to_string().contains("power of two"), "{too_many}");
}

/// Processes that claim and release as fast as they can, and are killed at any point.
#[test]
fn members_can_die_at_any_step() {
    let table = table(2, 256);
    let view = table.view();
    let mut random = fastrand::Rng::with_seed(7);
    let mut children: Vec<i32> = Vec::new();
    for number in 0..60 {
        // SAFETY: the child makes only the calls below, none of which takes a lock or allocates.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // If this test fails, the process ends with it.
            let _ = system::die_with_parent(libc::SIGKILL);
            // SAFETY: no pointers.
            let pid = unsafe { libc::getpid() }.cast_unsigned();
            let mut turn = 0_u64;
            loop {
                turn += 1;
                if let Some(claim) = member::choose(&view, pid, How::Exec, turn, None)
                    && turn.is_multiple_of(3)
                {
                    member::release(&view, claim.slot, pid);
                }
            }
        }
        assert!(child > 0);
        children.push(child);
        if number % 3 == 2 {
            std::thread::sleep(Duration::from_micros(random.u64(0..2000)));
            let victim = children.swap_remove(random.usize(0..children.len()));
            end(victim);
        }
        table.publish(&[Load::default(); 2]);
    }
    for child in children {
        end(child);
    }
    // No process writes any more: all entries of dead processes can be removed, and then no process is
    // counted.
    let begin = Instant::now();
    let dead: Vec<u32> = view.entries().map(|(_, entry, _)| entry.pid).collect();
    assert!(!dead.is_empty());
    for pid in dead {
        table.release(pid);
    }
    table.publish(&[Load::default(); 2]);
    assert_eq!((given(&table), view.entries().count()), (vec![0, 0], 0));
    for pid in 1..=256 {
        assert!(table.claim_for(pid, 0), "every slot can be reused: {pid}");
    }
    assert!(begin.elapsed() < Duration::from_secs(30));
}

fn end(child: i32) {
    // SAFETY: a child of ours that has not been waited for.
    unsafe {
        libc::kill(child, libc::SIGKILL);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
}
