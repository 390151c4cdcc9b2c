//! Why a system call failed.

use core::fmt;
use std::io::Error;

/// A number of `errno.h`, whose constants have their names there without the `E`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Errno(i32);

impl Errno {
    pub(crate) const ACCESS: Self = Errno(libc::EACCES);
    pub(crate) const AGAIN: Self = Errno(libc::EAGAIN);
    pub(crate) const BADF: Self = Errno(libc::EBADF);
    pub(crate) const ILSEQ: Self = Errno(libc::EILSEQ);
    pub(crate) const INTR: Self = Errno(libc::EINTR);
    pub(crate) const INVAL: Self = Errno(libc::EINVAL);
    pub(crate) const NODATA: Self = Errno(libc::ENODATA);
    pub(crate) const NOENT: Self = Errno(libc::ENOENT);
    pub(crate) const NOMEM: Self = Errno(libc::ENOMEM);
    pub(crate) const NOSYS: Self = Errno(libc::ENOSYS);
    pub(crate) const OPNOTSUPP: Self = Errno(libc::EOPNOTSUPP);
    pub(crate) const PERM: Self = Errno(libc::EPERM);
    pub(crate) const PROTO: Self = Errno(libc::EPROTO);
    pub(crate) const SRCH: Self = Errno(libc::ESRCH);
    pub(crate) const TIMEDOUT: Self = Errno(libc::ETIMEDOUT);

    pub(crate) const fn from_raw_os_error(number: i32) -> Self {
        Errno(number)
    }

    pub(crate) const fn raw_os_error(self) -> i32 {
        self.0
    }
}

impl From<Errno> for Error {
    fn from(errno: Errno) -> Self {
        Error::from_raw_os_error(errno.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Error::from(*self).fmt(f)
    }
}
