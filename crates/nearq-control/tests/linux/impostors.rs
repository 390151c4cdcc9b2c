//! Sockets that are not what their names say: sockets of processes that are gone, of other users, behind links, or that accept no
//! connection.
//!
//! Other processes are this test's program again; see `process`.

use std::fs;
use std::io::ErrorKind;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::Folder;
use crate::process::{
    Actor, NOBODY, as_user, copy_for_others, own_user, report, skipped_for_want_of_root,
    wait_for_the_end_of_input,
};
use crate::skipped::skipped;
use nearq_control::client::{Client, ConnectError};
use nearq_control::find;

/// A user other than [`NOBODY`].
const OTHER_USER: u32 = 12_345;

fn own_directory() -> PathBuf {
    Path::new(&std::env::var_os("XDG_RUNTIME_DIR").unwrap()).join("nearq")
}

fn make(directory: &Path) {
    fs::DirBuilder::new().mode(0o700).create(directory).unwrap();
}

fn own_name(directory: &Path) -> PathBuf {
    directory.join(std::process::id().to_string())
}

/// Has a backlog of one, which is full.
fn listen_with_full_backlog(path: &Path) -> UnixListener {
    let listener = UnixListener::bind(path).unwrap();
    // SAFETY: numbers only.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    std::mem::forget(UnixStream::connect(path).unwrap());
    listener
}

/// The part that the other process plays.
pub(crate) fn play(part: &str, what: &str) {
    let directory = own_directory();
    match part {
        "mute" => {
            make(&directory);
            let _listener = listen_with_full_backlog(&own_name(&directory));
            report("ready", "");
            wait_for_the_end_of_input();
        }
        // Ends, and leaves its socket to a child.
        "bequeath" => {
            make(&directory);
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            report("ready", "");
            // SAFETY: the child waits for the end of its input and makes no use of what other threads had.
            if unsafe { libc::fork() } == 0 {
                wait_for_the_end_of_input();
            }
            // SAFETY: it ends.
            unsafe { libc::_exit(0) }
        }
        // Listens as one user, in a directory of another one and with a socket of a third, and continues as a fourth.
        "owners" => {
            let mut words = what.split(' ');
            let [listener, owner, of_socket, own] =
                [(); 4].map(|()| words.next().unwrap().parse::<u32>().unwrap());
            let directory = words.next().map_or(directory, PathBuf::from);
            make(&directory);
            let name = own_name(&directory);
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::seteuid(listener) }, 0);
            let before = own_directory().with_file_name("s");
            let listener = UnixListener::bind(&before).unwrap();
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::seteuid(0) }, 0);
            fs::rename(before, &name).unwrap();
            std::os::unix::fs::chown(&name, Some(of_socket), None).unwrap();
            std::os::unix::fs::chown(&directory, Some(owner), None).unwrap();
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::setuid(own) }, 0);
            report("ready", "");
            wait_for_the_end_of_input();
            drop(listener);
        }
        "secret" => {
            // SAFETY: numbers only.
            assert_eq!(unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) }, 0);
            report("ready", "");
            wait_for_the_end_of_input();
        }
        "observe" => {
            let pid = what.parse().unwrap();
            report("listed", is_listed(pid));
            let connected = Client::connect(pid);
            report("connected", connected.map_or_else(|error| error.to_string(), |_| "yes".into()));
        }
        "link" => {
            make(&directory);
            symlink(what, own_name(&directory)).unwrap();
            report("ready", "");
            wait_for_the_end_of_input();
        }
        "elsewhere" => {
            make(Path::new(what));
            symlink(what, &directory).unwrap();
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            report("ready", "");
            wait_for_the_end_of_input();
        }
        "open" => {
            make(&directory);
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o720)).unwrap();
            let _listener = UnixListener::bind(own_name(&directory)).unwrap();
            report("ready", "");
            wait_for_the_end_of_input();
        }
        other => panic!("there is no part {other}"),
    }
}

fn is_listed(pid: u32) -> bool {
    find::processes().unwrap().iter().any(|found| found.pid == pid)
}

#[test]
fn a_process_that_accepts_no_connection_is_listed_and_times_out() {
    let folder = Folder::new("mute");
    let mut actor = Actor::start("mute", folder.path(), |_| {});
    actor.read("ready");
    assert!(is_listed(actor.pid()));
    let error = Client::connect_within(actor.pid(), Duration::from_millis(200)).unwrap_err();
    let ConnectError::Unreachable { error: why, .. } = &error else { panic!("{error}") };
    assert_eq!(why.kind(), ErrorKind::TimedOut);
    assert!(error.to_string().contains("accepts no connection"), "{error}");
}

#[test]
fn a_socket_inherited_from_a_dead_process_belongs_to_no_process() {
    let folder = Folder::new("bequeath");
    let mut actor = Actor::start("bequeath", folder.path(), |_| {});
    actor.read("ready");
    let socket = folder.path().join("nearq").join(actor.pid().to_string());
    let pid = actor.pid();
    actor.ends();
    // The child still answers.
    UnixStream::connect(&socket).unwrap();
    let error = Client::connect(pid).unwrap_err();
    assert!(matches!(error, ConnectError::NoSuchProcess { .. }), "{error}");
    let mut list = Actor::start("list", folder.path(), |_| {});
    let listed = list.everything();
    assert!(!listed.contains(&folder.path().display().to_string()), "{listed}");
}

/// Starts a process with a number of the caller's choice, which does nothing.
struct IdleProcess(libc::pid_t);

impl IdleProcess {
    fn with_number(pid: u32) -> std::io::Result<Self> {
        // The standard library cannot choose the number of a new process.
        let mut number = libc::pid_t::try_from(pid).unwrap();
        // SAFETY: numbers, of which 0 is one each.
        let mut wanted: libc::clone_args = unsafe { std::mem::zeroed() };
        wanted.exit_signal = libc::SIGCHLD as u64;
        wanted.set_tid = (&raw mut number) as u64;
        wanted.set_tid_size = 1;
        let size = size_of::<libc::clone_args>();
        // SAFETY: validity: what is pointed to lives longer than the call. Thread: the child shares no memory, and makes system calls only.
        match unsafe { libc::syscall(libc::SYS_clone3, &raw mut wanted, size) } {
            -1 => Err(std::io::Error::last_os_error()),
            // SAFETY: numbers only.
            0 => unsafe {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                // Other processes wait for the ends of these files.
                libc::syscall(libc::SYS_close_range, 0, u32::MAX, 0);
                loop {
                    libc::pause();
                }
            },
            _ => Ok(IdleProcess(number)),
        }
    }
}

impl Drop for IdleProcess {
    fn drop(&mut self) {
        // SAFETY: numbers only; it is a child that no other thread waits for.
        unsafe {
            libc::kill(self.0, libc::SIGKILL);
            libc::waitpid(self.0, std::ptr::null_mut(), 0);
        }
    }
}

#[test]
fn a_reused_process_number_does_not_match_an_old_socket() {
    let folder = Folder::new("reused");
    let mut actor = Actor::start("bequeath", folder.path(), |_| {});
    actor.read("ready");
    let pid = actor.pid();
    actor.ends();
    let another = match IdleProcess::with_number(pid) {
        Ok(another) => another,
        Err(error) => {
            return skipped("a number that is used again", error, "run the tests as root");
        }
    };
    let mut observer = Actor::start(&format!("observe {pid}"), folder.path(), |_| {});
    assert_eq!(observer.read("listed"), "false");
    let connected = observer.read("connected");
    assert!(connected.contains("does not listen"), "{connected}");
    drop(another);
}

/// A process of [`OTHER_USER`] with a socket that the same user made.
const OTHER_USERS_OWN: [u32; 4] = [OTHER_USER; 4];

fn owners([listener, directory, socket, process]: [u32; 4]) -> String {
    format!("owners {listener} {directory} {socket} {process}")
}

#[test]
fn a_socket_and_its_directory_belong_to_the_process_that_listens() {
    if skipped_for_want_of_root("a process that changes its user") {
        return;
    }
    for (users, why) in [
        (OTHER_USERS_OWN, None),
        // Root may become any user.
        ([0, OTHER_USER, OTHER_USER, OTHER_USER], None),
        ([OTHER_USER, 0, 0, OTHER_USER], None),
        ([NOBODY, OTHER_USER, OTHER_USER, OTHER_USER], Some("does not listen")),
        ([OTHER_USER, NOBODY, NOBODY, OTHER_USER], Some("its directory belongs to user 65534")),
        (
            [OTHER_USER, OTHER_USER, NOBODY, OTHER_USER],
            Some("not a socket that belongs to its directory's owner"),
        ),
        (
            [OTHER_USER, 0, OTHER_USER, OTHER_USER],
            Some("not a socket that belongs to its directory's owner"),
        ),
    ] {
        let folder = Folder::new("owners");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let mut actor = Actor::start(&owners(users), folder.path(), |_| {});
        actor.read("ready");
        assert_eq!(is_listed(actor.pid()), why.is_none(), "{users:?}");
        match (Client::connect(actor.pid()), why) {
            (Ok(_), None) => {}
            (Err(error), Some(why)) => assert!(error.to_string().contains(why), "{error}"),
            (connected, _) => panic!("{users:?}: {:?}", connected.err()),
        }
    }
}

#[test]
fn a_directory_that_is_named_after_another_user_is_not_listed() {
    if skipped_for_want_of_root("a list of all users' processes") {
        return;
    }
    let named = 1_000_000 + std::process::id();
    for (users, is_found) in [([named; 4], true), (OTHER_USERS_OWN, false)] {
        let folder = Folder::new("named");
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let directory = Folder::at(format!("/tmp/nearq-{named}").into());
        fs::remove_dir(directory.path()).unwrap();
        let part = format!("{} {}", owners(users), directory.path().display());
        let mut actor = Actor::start(&part, folder.path(), |_| {});
        actor.read("ready");
        assert_eq!(is_listed(actor.pid()), is_found, "{users:?}");
    }
}

#[test]
fn an_inaccessible_process_is_not_reported_as_slow() {
    let folder = Folder::new("secret");
    let user = if own_user() == 0 { NOBODY } else { own_user() };
    let program = copy_for_others(&folder);
    let start = |part: &str| {
        let mut command = as_user(user, &program, part);
        command.env("XDG_RUNTIME_DIR", folder.path());
        Actor::run(command)
    };
    let mut actor = start("secret");
    actor.read("ready");
    let connected = start(&format!("observe {}", actor.pid())).read("connected");
    assert!(connected.contains("it has more privileges than you"), "{connected}");
    let connected = start("observe 1").read("connected");
    let of_first = fs::metadata("/proc/1").unwrap().uid();
    if of_first == user {
        return skipped(
            "a process of another user",
            "the first one is the caller's",
            "use a container",
        );
    }
    let expected =
        format!("process 1 belongs to user {of_first}; only that user and root may inspect");
    assert!(connected.starts_with(&expected), "{connected}");
}

#[test]
fn symbolic_links_are_not_followed() {
    let folder = Folder::new("links");
    let path = folder.path().join("trap");
    let trap = UnixListener::bind(&path).unwrap();
    trap.set_nonblocking(true).unwrap();
    let runtime = folder.path().join("run");
    make(&runtime);
    let mut actor = Actor::start(&format!("link {}", path.display()), &runtime, |_| {});
    actor.read("ready");
    assert!(!is_listed(actor.pid()));
    let error = Client::connect(actor.pid()).unwrap_err();
    assert!(error.to_string().contains("a link, or not a socket"), "{error}");
    assert_eq!(
        trap.accept().unwrap_err().kind(),
        ErrorKind::WouldBlock,
        "the trap received a connection"
    );
}

#[test]
fn directories_that_are_links_or_open_to_others_are_left_alone() {
    let folder = Folder::new("directories");
    let elsewhere = format!("elsewhere {}", folder.path().join("other").display());
    for (run, part, why) in [("a", &*elsewhere, "does not listen"), ("b", "open", "can write")] {
        let runtime = folder.path().join(run);
        make(&runtime);
        let mut actor = Actor::start(part, &runtime, |_| {});
        actor.read("ready");
        assert!(!is_listed(actor.pid()), "{part}");
        let error = Client::connect(actor.pid()).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    }
}
