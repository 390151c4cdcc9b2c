//! A system that temporarily refuses the server its thread or its socket: the server is started later.

use std::fs;

use rustix::process::{Resource, getrlimit, setrlimit};

use crate::common::{Folder, until};
use crate::process::{
    Actor, NOBODY, as_user, begin, copy_for_others, make, own_user, report,
    wait_for_the_end_of_input,
};
use nearq_control::server::{self, Options, Status};

/// A program that temporarily can start no thread, or open no file.
pub(crate) fn play(limit: &str) {
    // A file that is open has a number below the limit, and all those below it may be in use.
    let (resource, low, files) = match limit {
        "threads" => (Resource::Nproc, 0, Vec::new()),
        _ => {
            let files = std::iter::repeat_with(|| fs::File::open("/dev/null").unwrap());
            (Resource::Nofile, 40, files.take(40).collect())
        }
    };
    let before = getrlimit(resource);
    let mut lowered = before;
    lowered.current = Some(low);
    setrlimit(resource, lowered).unwrap();
    report("status", begin());
    drop(files);
    setrlimit(resource, before).unwrap();
    // This is too early for another attempt.
    server::ensure(make, Options::default());
    report("status", server::status());
    until("it listens", || {
        server::ensure(make, Options::default());
        matches!(server::status(), Status::Listening { .. })
    });
    report("status", server::status());
    wait_for_the_end_of_input();
}

#[test]
fn a_temporary_refusal_is_retried() {
    for (limit, why) in
        [("threads", "Resource temporarily unavailable"), ("files", "Too many open")]
    {
        let folder = Folder::new("refused");
        let runtime = folder.path().join("run");
        fs::create_dir(&runtime).unwrap();
        // The limit on threads does not apply to root.
        let user = if own_user() == 0 { NOBODY } else { own_user() };
        let program = copy_for_others(&folder);
        let mut command = as_user(user, &program, &format!("refused {limit}"));
        if own_user() == 0 {
            std::os::unix::fs::chown(&runtime, Some(user), None).unwrap();
        }
        command.env("XDG_RUNTIME_DIR", &runtime);
        let mut actor = Actor::run(command);
        for _ in 0..2 {
            let status = actor.read("status");
            assert!(status.starts_with("failed: ") && status.contains(why), "{limit}: {status}");
        }
        let socket = runtime.join("nearq").join(actor.pid().to_string());
        let listens = format!("listening on {}, for inspection", socket.display());
        assert_eq!(actor.read("status"), listens, "{limit}");
        actor.end();
    }
}
