//! Tests of `job`: the job of a real machine.

use super::*;
use crate::harness::options::named;

#[test]
fn files_are_generated_processed_and_checked() {
    for kind in [Kind::Compile, Kind::Compress] {
        let Ok(mut job) = Job::prepare(Some(kind), 2, None) else {
            println!(
                "skipped: {}: the program is missing; to have it: install gcc and xz",
                kind.name()
            );
            continue;
        };
        if kind == Kind::Compress {
            // The files that were found are large.
            job.inputs = job.make_up(2).unwrap();
        }
        assert!(job.check(1, false).is_err());
        job.do_one(0).unwrap();
        job.check(1, false).unwrap();
        assert!(job.check(2, false).is_err());
        let done = Command::new("sh").args(["-c", &job.shell(1)]).status().unwrap();
        assert!(done.success());
        job.check(2, false).unwrap();
        assert!(job.check(1, true).is_err(), "it was not written away");
        job.write_back(0).unwrap();
        job.check(1, true).unwrap();
        assert!(job.check(2, true).is_err());
        job.clean().unwrap();
        assert!(job.check(1, false).is_err());
        let folder = job.folder().to_owned();
        drop(job);
        assert!(!folder.exists());
    }
}

#[test]
fn files_differ_and_are_reproducible() {
    assert_eq!(c_file(3), c_file(3));
    assert_ne!(c_file(3), c_file(4));
    let error = named("--kind", "link", &Kind::ALL).unwrap_err();
    assert!(error.to_string().contains("compile or compress"));
}
