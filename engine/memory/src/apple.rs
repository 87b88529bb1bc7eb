//! Owns: the calls to Apple's kernel about memory (engine.md section 8), each a few lines.
//! Refuses: meaning; `available.rs` and `peak.rs` say what comes of the numbers.
//! Invariants: a call that failed is an error with the kernel's own number.
//!
//! Type-checked only; it has not run on a Mac yet.

use std::ffi::CStr;
use std::io;

use crate::available::Pages;

unsafe extern "C" {
    fn mach_host_self() -> libc::mach_port_t;
}

/// What is in the pages of this machine.
pub(crate) fn pages() -> io::Result<Pages> {
    let mut statistics = std::mem::MaybeUninit::<libc::vm_statistics64>::zeroed();
    let mut count = libc::HOST_VM_INFO64_COUNT;
    // SAFETY: the flavour fills a vm_statistics64, and `count` says how many words it has.
    let failed = unsafe {
        libc::host_statistics64(mach_host_self(), libc::HOST_VM_INFO64, statistics.as_mut_ptr().cast(), &mut count)
    };
    if failed != libc::KERN_SUCCESS {
        return Err(io::Error::other(format!("kernel error {failed}")));
    }
    // SAFETY: the structure is made of integers, zeroed above and filled by the call.
    let statistics = unsafe { statistics.assume_init() };
    Ok(Pages {
        size: u64::try_from(sysctl::<i64>(c"hw.pagesize")?).map_err(io::Error::other)?,
        free: statistics.free_count.into(),
        purgeable: statistics.purgeable_count.into(),
        files: statistics.external_page_count.into(),
    })
}

/// What the kernel calls its level of memory pressure.
pub(crate) fn pressure_level() -> io::Result<u32> {
    sysctl(c"kern.memorystatus_vm_pressure_level")
}

/// The version of the system, as `14.5`.
pub(crate) fn release() -> Option<String> {
    let (mut text, name) = ([0u8; 64], c"kern.osproductversion");
    let mut bytes = text.len();
    // SAFETY: the kernel writes at most `bytes` bytes to `text`, and says how many.
    let failed =
        unsafe { libc::sysctlbyname(name.as_ptr(), text.as_mut_ptr().cast(), &mut bytes, std::ptr::null_mut(), 0) };
    let whole = text.get(..bytes).filter(|_| failed == 0)?;
    Some(CStr::from_bytes_until_nul(whole).ok()?.to_string_lossy().into_owned())
}

/// A number that the kernel has under a name.
fn sysctl<T: Copy + Default>(name: &CStr) -> io::Result<T> {
    let (mut value, mut bytes) = (T::default(), size_of::<T>());
    // SAFETY: the kernel writes at most `bytes` bytes to `value`; every pattern of them is one of an integer.
    let failed =
        unsafe { libc::sysctlbyname(name.as_ptr(), (&raw mut value).cast(), &mut bytes, std::ptr::null_mut(), 0) };
    match failed {
        0 if bytes == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::InvalidData.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
