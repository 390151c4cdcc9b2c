//! `bpf(2)`: maps that were put into the BPF file system.
//!
//! The call takes a union of structures, of which each command reads its own. They are laid out by hand, as the kernel's
//! `include/uapi/linux/bpf.h` has them; addresses are 64 bits wide everywhere, and the kernel takes a structure shorter than its own as
//! padded with zeros. `errno` is left as it was. Under Miri every call answers `ENOSYS`.

use core::ffi::{CStr, c_int, c_long, c_uint, c_void};
use core::ptr::{self, NonNull};
use core::sync::atomic::AtomicU64;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use super::{Errno, Result, SavedErrno, check};

/// `enum bpf_cmd`.
const MAP_UPDATE_ELEM: c_int = 2;
const MAP_DELETE_ELEM: c_int = 3;
const OBJ_GET: c_int = 7;
const OBJ_GET_INFO_BY_FD: c_int = 15;

/// `BPF_MAP_TYPE_HASH`.
const HASH: u32 = 1;
/// `BPF_MAP_TYPE_ARRAY`.
const ARRAY: u32 = 2;

/// `BPF_F_MMAPABLE`: a process may have the map in its memory.
const MMAPABLE: u32 = 1 << 10;

/// `BPF_F_WRONLY`: nothing is read from a map, and a user that may write it need not be allowed to read it.
const WRITE_ONLY: u32 = 1 << 4;

/// What `OBJ_GET` takes.
#[repr(C)]
struct ObjectByPath {
    path: u64,
    file: u32,
    flags: u32,
}

/// What `MAP_UPDATE_ELEM` and `MAP_DELETE_ELEM` take.
#[repr(C)]
struct Element {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// What `OBJ_GET_INFO_BY_FD` takes.
#[repr(C)]
struct InfoByFile {
    file: u32,
    length: u32,
    info: u64,
}

/// The beginning of `struct bpf_map_info`.
#[derive(Default)]
#[repr(C)]
struct MapInfo {
    kind: u32,
    id: u32,
    key: u32,
    value: u32,
    entries: u32,
    flags: u32,
}

/// Carries out a command.
///
/// # Safety
/// `attributes` are those of the command, and the addresses in them are of memory that is as long as the command expects, lives until
/// this returns, and is not accessed elsewhere if the command writes it.
unsafe fn bpf<T>(command: c_int, attributes: &mut T) -> Result<c_long> {
    if cfg!(miri) {
        return Err(Errno::NOSYS);
    }
    let size = size_of::<T>() as c_uint;
    let _saved = SavedErrno::new();
    // SAFETY: validity: the structure lives for the call and has the stated length; for what it points to, by the caller. Aliasing: it
    // is borrowed exclusively. Thread: any thread may call.
    check(unsafe { libc::syscall(libc::SYS_bpf, command, &raw mut *attributes, size) })
}

/// The map that is pinned at a path.
fn open(path: &CStr, flags: u32) -> Result<OwnedFd> {
    let path = path.as_ptr().expose_provenance() as u64;
    let mut attributes = ObjectByPath { path, file: 0, flags };
    // SAFETY: a text that ends with a zero byte, which the command reads.
    let file = unsafe { bpf(OBJ_GET, &mut attributes) }?;
    // SAFETY: a descriptor that was made just now, for the caller, which alone knows it.
    Ok(unsafe { OwnedFd::from_raw_fd(file as c_int) })
}

/// What a map is.
fn info(map: &OwnedFd) -> Result<MapInfo> {
    let mut info = MapInfo::default();
    let mut attributes = InfoByFile {
        file: map.as_raw_fd() as u32,
        length: size_of::<MapInfo>() as u32,
        info: (&raw mut info).expose_provenance() as u64,
    };
    // SAFETY: the stated number of bytes are the command's to write, and a local's.
    unsafe { bpf(OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    Ok(info)
}

/// Memory of the process that can stand for an array map of as many numbers of eight bytes. It is never unmapped, so a thread that writes to
/// it while it begins to stand for another map writes to one or the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SharedArray {
    memory: NonNull<AtomicU64>,
    len: usize,
}

// SAFETY: the memory is never unmapped, and all accesses to it are atomic.
unsafe impl Send for SharedArray {}
// SAFETY: as above.
unsafe impl Sync for SharedArray {}

impl SharedArray {
    /// Memory that stands for no map yet. `len` must not be zero.
    pub(crate) fn new(len: usize) -> Result<Self> {
        // SAFETY: no address is given, so nothing that is mapped already is touched.
        let memory = unsafe { map(ptr::null_mut(), len, None) }?;
        Ok(SharedArray { memory: memory.cast(), len })
    }

    /// Its numbers.
    pub(crate) fn numbers(&self) -> &'static [AtomicU64] {
        // SAFETY: that many numbers are mapped there, on whole pages, for as long as the process runs; the kernel and other processes
        // access them by whole numbers, as atomics do.
        unsafe { core::slice::from_raw_parts(self.memory.as_ptr(), self.len) }
    }

    /// From now on it stands for the map that is pinned at a path. `EACCES` if the caller may not read and write that; `EPROTO` if it is a
    /// map of another kind or length. Then nothing changes. Aborts the process if a map that could be mapped elsewhere cannot be mapped here.
    pub(crate) fn stand_for(&self, path: &CStr) -> Result<()> {
        let file = open(path, 0)?;
        let info = info(&file)?;
        let sizes = (info.key as usize, info.value as usize, info.entries as usize);
        let expected = (size_of::<u32>(), size_of::<u64>(), self.len);
        if info.kind != ARRAY || info.flags & MMAPABLE == 0 || sizes != expected {
            return Err(Errno::PROTO);
        }
        // A kernel may unmap the old memory before it asks whether the map can be mapped. So this is tried elsewhere first.
        // SAFETY: no address is given, so nothing that is mapped already is touched.
        let tried = unsafe { map(ptr::null_mut(), self.len, Some(&file)) }?;
        // SAFETY: that many bytes were mapped there just now, and nothing refers to them.
        unsafe { libc::munmap(tried.as_ptr(), self.len * size_of::<u64>()) };
        // SAFETY: this memory is ours alone to map, and any bytes are valid numbers.
        if unsafe { map(self.memory.as_ptr().cast(), self.len, Some(&file)) }.is_err() {
            // Nothing may be mapped there now, and other threads write to it.
            std::process::abort();
        }
        Ok(())
    }
}

/// Maps that many numbers: of a BPF map, or private ones. At an address, what was mapped there before is replaced in one step.
///
/// # Safety
/// `address` is null, or as many numbers are mapped there by the caller, which keeps no references into them but to atomics.
unsafe fn map(address: *mut c_void, len: usize, of: Option<&OwnedFd>) -> Result<NonNull<c_void>> {
    let bytes = len * size_of::<u64>();
    let fixed = if address.is_null() { 0 } else { libc::MAP_FIXED };
    let (flags, file) = match of {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let access = libc::PROT_READ | libc::PROT_WRITE;
    let _saved = SavedErrno::new();
    // SAFETY: validity, aliasing: by the caller, if there is an address; otherwise the memory is new. Thread: any thread may call.
    let mapped = unsafe { libc::mmap(address, bytes, access, flags | fixed, file, 0) };
    // `MAP_FAILED` is -1, as for other calls.
    check(mapped as isize as c_long)?;
    NonNull::new(mapped).ok_or(Errno::NOMEM)
}

/// A hash map whose keys are numbers and whose values are two of them, open for writing.
#[derive(Debug)]
pub(crate) struct NumberMap(OwnedFd);

impl NumberMap {
    /// The one that is pinned at a path. `EACCES` if it is no BPF object, or the caller may not write it; `EPROTO` if it is a map of
    /// another kind.
    pub(crate) fn open(path: &CStr) -> Result<Self> {
        let map = NumberMap(open(path, WRITE_ONLY)?);
        let info = info(&map.0)?;
        let sizes = (info.key as usize, info.value as usize);
        let expected = info.kind == HASH && sizes == (size_of::<u32>(), size_of::<[u32; 2]>());
        if expected { Ok(map) } else { Err(Errno::PROTO) }
    }

    /// Sets the value of a key, whatever it was before.
    pub(crate) fn set(&self, key: u32, value: [u32; 2]) -> Result<()> {
        let mut attributes = self.element(&key);
        attributes.value = (&raw const value).expose_provenance() as u64;
        // SAFETY: the command reads a key and a value of the sizes that the map was found to have; both are locals.
        unsafe { bpf(MAP_UPDATE_ELEM, &mut attributes) }.map(drop)
    }

    /// Removes the value of a key. `ENOENT` if there is none.
    pub(crate) fn remove(&self, key: u32) -> Result<()> {
        let mut attributes = self.element(&key);
        // SAFETY: the command reads a key of the size that the map was found to have; it is a local.
        unsafe { bpf(MAP_DELETE_ELEM, &mut attributes) }.map(drop)
    }

    fn element(&self, key: &u32) -> Element {
        let key = core::ptr::from_ref(key).expose_provenance() as u64;
        Element { map: self.file(), unused: 0, key, value: 0, flags: 0 }
    }

    fn file(&self) -> u32 {
        self.0.as_raw_fd() as u32
    }
}

#[cfg(test)]
pub(crate) mod made {
    //! Maps for tests.

    use super::*;

    const MAP_CREATE: c_int = 0;
    const MAP_LOOKUP_ELEM: c_int = 1;
    const OBJ_PIN: c_int = 6;

    #[repr(C)]
    struct Create {
        kind: u32,
        key: u32,
        value: u32,
        entries: u32,
        flags: u32,
    }

    /// A map that a test has created.
    #[derive(Debug)]
    pub(crate) struct Made(NumberMap);

    impl Made {
        /// A hash map whose values have that many bytes.
        pub(crate) fn new(value: u32) -> Result<Self> {
            let mut attributes = Create { kind: HASH, key: 4, value, entries: 8, flags: 0 };
            // SAFETY: numbers.
            let file = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
            // SAFETY: a descriptor that was made just now, for the caller, which alone knows it.
            Ok(Made(NumberMap(unsafe { OwnedFd::from_raw_fd(file as c_int) })))
        }

        /// An array map of that many numbers of eight bytes, which processes may have in their memory.
        pub(crate) fn shared(entries: u32) -> Result<Self> {
            let mut attributes = Create { kind: ARRAY, key: 4, value: 8, entries, flags: MMAPABLE };
            // SAFETY: numbers.
            let file = unsafe { bpf(MAP_CREATE, &mut attributes) }?;
            // SAFETY: a descriptor that was made just now, for the caller, which alone knows it.
            Ok(Made(NumberMap(unsafe { OwnedFd::from_raw_fd(file as c_int) })))
        }

        /// Pins the map at a path.
        pub(crate) fn pin(&self, path: &CStr) -> Result<()> {
            let path = path.as_ptr().expose_provenance() as u64;
            let mut attributes = ObjectByPath { path, file: self.0.file(), flags: 0 };
            // SAFETY: a text that ends with a zero byte, which the command reads.
            unsafe { bpf(OBJ_PIN, &mut attributes) }.map(drop)
        }

        /// The value of a key.
        pub(crate) fn get(&self, key: u32) -> Option<[u32; 2]> {
            let mut value = [0; 2];
            let mut attributes = self.0.element(&key);
            attributes.value = (&raw mut value).expose_provenance() as u64;
            // SAFETY: the command reads a key of four bytes and writes a value of eight, as the map was made with; both are locals.
            unsafe { bpf(MAP_LOOKUP_ELEM, &mut attributes) }.ok().map(|_| value)
        }
    }
}

#[cfg(test)]
mod tests {
    use core::mem::offset_of;

    use super::*;

    /// As the kernel's header has them, on every processor.
    #[test]
    fn attributes_have_the_layout_that_the_kernel_expects() {
        let path = [offset_of!(ObjectByPath, path), offset_of!(ObjectByPath, file)];
        assert_eq!((path, offset_of!(ObjectByPath, flags)), ([0, 8], 12));
        let element = [offset_of!(Element, map), offset_of!(Element, key)];
        assert_eq!(element, [0, 8]);
        assert_eq!([offset_of!(Element, value), offset_of!(Element, flags)], [16, 24]);
        let info = [offset_of!(InfoByFile, file), offset_of!(InfoByFile, length)];
        assert_eq!((info, offset_of!(InfoByFile, info)), ([0, 4], 8));
        let map = [offset_of!(MapInfo, kind), offset_of!(MapInfo, key), offset_of!(MapInfo, value)];
        assert_eq!(map, [0, 8, 12]);
        let sizes = [
            size_of::<ObjectByPath>(),
            size_of::<Element>(),
            size_of::<InfoByFile>(),
            size_of::<MapInfo>(),
        ];
        assert_eq!(sizes, [16, 32, 16, 24], "there is no padding");
    }
}
