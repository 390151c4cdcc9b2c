//! The home hint to the machine's scheduler, if the node affine scheduler is loaded: on which node this process is at home. It is what
//! `nearq_platform::Linux::set_home_hint_of` sends; its file has the protocol. Here it is written with system calls alone.

use core::ffi::{CStr, c_int, c_long, c_uint};

use super::kernel::{SYS_bpf, SYS_close, syscall};
use super::system;

/// Where the scheduler has its map.
const PATH: &CStr = c"/sys/fs/bpf/nearq/told";
/// `/proc/self/ns/pid` in the first namespace of processes, whose numbers the map has.
const FIRST_NAMESPACE: &[u8] = b"pid:[4026531836]";
/// What is reported besides the node: that the home was reported.
const REQUESTED: u32 = 4;

/// `enum bpf_cmd`.
const MAP_UPDATE_ELEM: c_int = 2;
const OBJ_GET: c_int = 7;
const OBJ_GET_INFO_BY_FD: c_int = 15;
/// `BPF_MAP_TYPE_HASH`.
const HASH: u32 = 1;
/// `BPF_F_WRONLY`.
const WRITE_ONLY: u32 = 1 << 4;

/// What `OBJ_GET` takes.
#[repr(C)]
struct ObjectByPath {
    path: u64,
    file: u32,
    flags: u32,
}

/// What `OBJ_GET_INFO_BY_FD` takes.
#[repr(C)]
struct InfoByFile {
    file: u32,
    length: u32,
    info: u64,
}

/// What `MAP_UPDATE_ELEM` takes.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// Carries out a command; negative if it is refused.
///
/// # Safety
/// `attributes` are those of the command, and the addresses in them are of memory that is as long as the command expects, lives until
/// this returns, and is not accessed elsewhere if the command writes it.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> c_long {
    let size = size_of::<T>() as c_uint;
    // SAFETY: the structure lives for the call and has the stated length; for what it points to, by the caller.
    unsafe { syscall(SYS_bpf, command, core::ptr::from_mut(attributes), size) }
}

/// Tells the scheduler that the process is at home on a node, as the system numbers nodes.
pub(crate) fn send(pid: u32, node: u32) {
    let path = PATH.as_ptr().expose_provenance() as u64;
    let mut object = ObjectByPath { path, file: 0, flags: WRITE_ONLY };
    // SAFETY: a text that ends with a zero byte, which the command reads.
    let Ok(file) = u32::try_from(unsafe { bpf(OBJ_GET, &mut object) }) else { return };
    if is_as_expected(file) && is_in_first_namespace() {
        let value = [node, REQUESTED];
        let mut element = Element {
            map: file,
            unused: 0,
            key: (&raw const pid).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        // SAFETY: the command reads a key and a value of the sizes that the map was found to have; both are locals.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut element) };
    }
    // SAFETY: it was opened above, and nothing else knows it.
    unsafe { syscall(SYS_close, c_long::from(file)) };
}

/// Whether it is a hash map from a number to two.
fn is_as_expected(file: u32) -> bool {
    // The beginning of `struct bpf_map_info`: the kind, a number, the sizes of a key and of a value.
    let mut info = [0_u32; 4];
    let mut request = InfoByFile {
        file,
        length: size_of_val(&info) as u32,
        info: (&raw mut info).expose_provenance() as u64,
    };
    // SAFETY: the stated number of bytes are the command's to write, and a local's.
    let returned = unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut request) };
    let [kind, _, key, value] = info;
    returned == 0 && kind == HASH && key == 4 && value == 8
}

fn is_in_first_namespace() -> bool {
    let mut buffer = [0; 32];
    system::read_link(c"/proc/self/ns/pid", &mut buffer) == FIRST_NAMESPACE
}
