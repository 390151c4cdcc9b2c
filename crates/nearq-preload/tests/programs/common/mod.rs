//! What the tests have in common: the library, and programs in C.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::skipped::skipped;

/// The library, which cargo has put into the same directory as this test.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its file");
    let library = test.parent().expect("it is in a folder").join("libnearq_preload.so");
    assert!(library.exists(), "cargo builds {} before the tests", library.display());
    library
}

/// A directory of this run's own.
pub(crate) fn folder() -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::create_dir_all(&folder).expect("the folder for tests can be made");
    folder
}

/// A directory for programs' sockets.
pub(crate) fn folder_for_sockets(name: &str) -> PathBuf {
    let runtime = folder().join(format!("sockets-{name}"));
    fs::create_dir_all(&runtime).expect("the folder for tests can be written to");
    fs::set_permissions(&runtime, PermissionsExt::from_mode(0o700))
        .expect("the folder belongs to this process");
    runtime
}

fn has_compiler() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let has = Command::new("cc").arg("--version").output().is_ok();
        if !has {
            let how = "apt-get install gcc libc6-dev";
            skipped("programs in C under the preload", "there is no cc", how);
        }
        has
    })
}

/// Compiles a program of `tests/c` under a name of its own; none if there is no compiler.
pub(crate) fn compile(source: &str, name: &str, arguments: &[&str]) -> Option<PathBuf> {
    if !has_compiler() {
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(source);
    let program = folder().join(name);
    let output = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"])
        .arg(&program)
        .arg(source)
        .args(arguments)
        .output()
        .expect("there is a compiler");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(program)
}
