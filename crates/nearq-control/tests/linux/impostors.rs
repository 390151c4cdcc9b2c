//! Sockets that are not what their names say: of processes that are gone, of other users, behind links, or where nobody is let in.
//!
//! Other processes are this test's program again; see `process`.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::Folder;
use crate::process::{Actor, NOBODY, say, skipped_for_want_of_root, wait_for_the_end_of_input};
use nearq_control::client::{Client, ConnectError};
use nearq_control::find;

/// A user other than [`NOBODY`].
const SOMEBODY: u32 = 12_345;

fn own_directory() -> PathBuf {
    Path::new(&std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("nearq")
}

fn make(directory: &Path) {
    fs::DirBuilder::new().mode(0o700).create(directory).unwrap();
}

fn own_name(directory: &Path) -> PathBuf {
    directory.join(std::process::id().to_string())
}

/// Has a backlog of one, in which there is no place.
fn listen_and_let_nobody_in(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    std::mem::forget(UnixStream::connect(path).unwrap());
    listener
}

/// What the other process does.
pub(crate) fn play(part: &str, what: &str) {
    let directory = own_directory();
    match part {
        "mute" => {
            make(&directory);
            let _listener = listen_and_let_nobody_in(&own_name(&directory));
            say("ready", "");
            wait_for_the_end_of_input();
        }
        // Ends, and leaves its socket to a child.
        "bequeath" => {
            make(&directory);
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            say("ready", "");
            // SAFETY: the child waits for the end of its input and makes no use of what other threads had.
            if unsafe { libc::fork() } == 0 {
                wait_for_the_end_of_input();
            }
            // SAFETY: it ends.
            unsafe { libc::_exit(0) }
        }
        // Listens as one user and goes on as another.
        "change" => {
            make(&directory);
            std::os::unix::fs::chown(&directory, Some(SOMEBODY), None).unwrap();
            let name = own_name(&directory);
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::seteuid(NOBODY) }, 0);
            let listener = UnixListener::bind(directory.parent().unwrap().join("s")).unwrap();
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::seteuid(0) }, 0);
            fs::rename(directory.parent().unwrap().join("s"), &name).unwrap();
            std::os::unix::fs::chown(&name, Some(SOMEBODY), None).unwrap();
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::setuid(SOMEBODY) }, 0);
            say("ready", "");
            wait_for_the_end_of_input();
            drop(listener);
        }
        "link" => {
            make(&directory);
            symlink(what, own_name(&directory)).unwrap();
            say("ready", "");
            wait_for_the_end_of_input();
        }
        "elsewhere" => {
            make(Path::new(what));
            symlink(what, &directory).unwrap();
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            say("ready", "");
            wait_for_the_end_of_input();
        }
        "open" => {
            make(&directory);
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o720)).unwrap();
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            say("ready", "");
            wait_for_the_end_of_input();
        }
        other => panic!("there is no part {other}"),
    }
}

fn is_listed(pid: u32) -> bool {
    find::processes().unwrap().iter().any(|found| found.pid == pid)
}

#[test]
fn a_process_that_lets_nobody_in_is_listed_and_given_up_in_time() {
    let folder = Folder::new("mute");
    let mut actor = Actor::start("mute", folder.path(), |_| {});
    actor.says("ready");
    assert!(is_listed(actor.pid()));
    let error = Client::connect_within(actor.pid(), Duration::from_millis(200)).unwrap_err();
    let ConnectError::Unreachable { error: why, .. } = &error else { panic!("{error}") };
    assert_eq!(why.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("lets nobody in"), "{error}");
}

#[test]
fn a_socket_that_a_dead_process_left_to_a_child_is_nobodys() {
    let folder = Folder::new("bequeath");
    let mut actor = Actor::start("bequeath", folder.path(), |_| {});
    actor.says("ready");
    let socket = folder.path().join("nearq").join(actor.pid().to_string());
    let pid = actor.pid();
    actor.ends();
    // The child answers still.
    UnixStream::connect(&socket).unwrap();
    let error = Client::connect(pid).unwrap_err();
    assert!(matches!(error, ConnectError::NoSuchProcess { .. }), "{error}");
    let mut list = Actor::start("list", folder.path(), |_| {});
    let listed = list.everything();
    assert!(!listed.contains(&folder.path().display().to_string()), "{listed}");
}

#[test]
fn who_listened_as_another_user_is_not_the_process() {
    if skipped_for_want_of_root("a process that changes its user") {
        return;
    }
    let folder = Folder::new("change");
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
    let mut actor = Actor::start("change", folder.path(), |_| {});
    actor.says("ready");
    assert!(!is_listed(actor.pid()));
    let error = Client::connect(actor.pid()).unwrap_err();
    assert!(matches!(error, ConnectError::NoSocket { .. }), "{error}");
}

#[test]
fn links_are_not_followed() {
    let folder = Folder::new("links");
    let path = folder.path().join("trap");
    let trap = UnixListener::bind(&path).unwrap();
    trap.set_nonblocking(true).unwrap();
    let runtime = folder.path().join("run");
    make(&runtime);
    let mut actor = Actor::start(&format!("link {}", path.display()), &runtime, |_| {});
    actor.says("ready");
    assert!(!is_listed(actor.pid()));
    let error = Client::connect(actor.pid()).unwrap_err();
    assert!(error.to_string().contains("a link, or no socket"), "{error}");
    assert_eq!(trap.accept().unwrap_err().kind(), ErrorKind::WouldBlock, "it was connected to");
}

#[test]
fn directories_that_are_links_or_open_to_others_are_left_alone() {
    let folder = Folder::new("directories");
    let elsewhere = format!("elsewhere {}", folder.path().join("other").display());
    for (run, part, why) in [("a", &*elsewhere, "does not listen"), ("b", "open", "can write")] {
        let runtime = folder.path().join(run);
        make(&runtime);
        let mut actor = Actor::start(part, &runtime, |_| {});
        actor.says("ready");
        assert!(!is_listed(actor.pid()), "{part}");
        let error = Client::connect(actor.pid()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
