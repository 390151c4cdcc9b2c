//! The command `nearq`, under which `bench numa` runs trees of processes.

use nearq_processes::jobs::find;
use std::env;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::PathBuf;

const NEARQ: &str = "nearq";

/// The path of the command: beside this program, or else in the folders of PATH; `None` if it is in neither.
pub(crate) fn program() -> Option<PathBuf> {
    let beside = env::current_exe().ok()?.with_file_name(NEARQ);
    let found = find(beside.as_os_str().as_bytes(), None)
        .or_else(|_| find(NEARQ.as_bytes(), env::var_os("PATH").as_deref()));
    Some(OsString::from_vec(found.ok()?.into_bytes()).into())
}
