//! For tests: a folder with a BPF file system, in which maps can be pinned.

use std::ffi::CString;
use std::fs;
use std::path::PathBuf;

use crate::skipped::skipped;
use crate::sys::made::Made;

/// A folder of its own that is removed with the value.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        let name = format!("nearq-hints-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub(super) fn file(&self, name: &str) -> CString {
        CString::new(self.0.join(name).to_str().unwrap()).unwrap()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // It does no harm if the folder stays.
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs a test in a folder with a BPF file system, in a mount namespace of the thread's own, so that no other thread sees the file system.
/// If that is not allowed, prints why `what` is not tested.
pub(super) fn in_bpf_file_system(name: &str, what: &str, test: impl FnOnce(&Folder) + Send) {
    let body = || {
        let folder = Folder::new(name);
        if let Err(why) = mount(&folder) {
            let how = "run the tests as root, with a kernel that has CONFIG_BPF_SYSCALL";
            return skipped(what, why, how);
        }
        test(&folder);
        let path = folder.file("");
        // SAFETY: a path that ends with a zero byte; in this thread's view of the files alone.
        unsafe { libc::umount2(path.as_ptr(), libc::MNT_DETACH) };
    };
    std::thread::scope(|scope| scope.spawn(body).join().unwrap());
}

/// Gives this thread a view of its own, with a BPF file system there.
fn mount(folder: &Folder) -> Result<(), String> {
    let last = |what: &str| format!("{what}: {}", std::io::Error::last_os_error());
    let path = folder.file("");
    // SAFETY: numbers. It concerns this thread alone.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(last("a view of the files of its own"));
    }
    let (none, private) = (core::ptr::null(), libc::MS_REC | libc::MS_PRIVATE);
    // SAFETY: paths that end with a zero byte, and nothing else to be read.
    if unsafe { libc::mount(none, c"/".as_ptr(), none, private, none.cast()) } != 0 {
        return Err(last("mounts of its own"));
    }
    let kind = c"bpf".as_ptr();
    // SAFETY: paths that end with a zero byte, and nothing else to be read; in this thread's view of the files alone.
    if unsafe { libc::mount(kind, path.as_ptr(), kind, 0, none.cast()) } != 0 {
        return Err(last("mount -t bpf"));
    }
    Made::new(8).map(drop).map_err(|error| format!("a map: {error}"))
}
