//! The mutexes of a process that no thread has waited for yet, queried by a thread with as little stack as the server's.

use std::collections::BTreeMap;

use nearq_control::control_target::ControlTarget;
use nearq_control::locks::LocksOnly;
use nearq_control::protocol::{GetDump, Locks};
use nearq_platform::{Linux, LockPlatform, ThreadSpec, Threads};

#[test]
fn the_first_call_fits_into_the_servers_stack() {
    assert!(Linux::shared().is_null(), "mutexes share no state yet");
    let spec = ThreadSpec { stack_size: Some(64 << 10), ..ThreadSpec::default() };
    let thread = Linux::spawn(spec, || {
        let mut target = LocksOnly::new();
        let wanted = GetDump { items: false, locks: true };
        let seen = target
            .dump(&wanted)
            .expect("mutexes need no runtime")
            .locks
            .expect("they were requested");
        let nothing = Locks { mode: seen.mode.clone(), ..Locks::default() };
        assert_eq!(seen, nothing);
        let changes = BTreeMap::from([("lock_count".to_owned(), "1".to_owned())]);
        target.set(None, &changes).expect("the setting is writable");
        assert!(
            target
                .dump(&wanted)
                .expect("mutexes need no runtime")
                .locks
                .expect("they were requested")
                .counting
        );
        assert_eq!(
            target.settings(None).expect("mutexes need no runtime").process.unwrap().settings.len(),
            8
        );
    });
    Linux::join(thread.expect("a thread can be created"));
    assert!(!Linux::shared().is_null());
}
