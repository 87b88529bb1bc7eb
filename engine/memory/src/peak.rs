//! Owns: the most memory that this process has used (engine.md section 8.3).
//! Refuses: what it uses now, and on what.
//! Invariants: a peak never falls, and memory that the process figure includes is not counted twice.
//!
//! The Apple half (`ri_lifetime_max_phys_footprint`) is type-checked only; it has not run on a Mac yet.

use crate::{Error, Result};

/// The most memory used: by the process, and on devices beyond that.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Peak {
    /// High-water mark of the process's footprint in bytes.
    pub process: u64,
    /// Largest device memory in bytes that `process` does not include: 0 for the reference backend, whose memory is the
    /// process's own, and on unified memory where the footprint counts it.
    pub device_extra: u64,
}

impl Peak {
    /// The peak up to now.
    ///
    /// # Errors
    /// [`Error::System`] when the system does not say.
    pub fn measure(device_extra: u64) -> Result<Self> {
        Ok(Peak { process: process_peak_bytes()?, device_extra })
    }

    /// Both together, in bytes. The two marks may be from different times, so that this never says too little.
    pub fn bytes(self) -> u64 {
        self.process.saturating_add(self.device_extra)
    }
}

/// High-water mark of this process's footprint in bytes: `VmHWM` on Linux.
///
/// # Errors
/// [`Error::System`] when the system does not say.
#[cfg(not(target_vendor = "apple"))]
pub fn process_peak_bytes() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    status_peak(&status).map_or_else(resident_peak, Ok)
}

/// High-water mark of this process's footprint in bytes: `ri_lifetime_max_phys_footprint`.
///
/// # Errors
/// [`Error::System`] when the system does not say.
#[cfg(target_vendor = "apple")]
pub fn process_peak_bytes() -> Result<u64> {
    let mut info = std::mem::MaybeUninit::<libc::rusage_info_v4>::zeroed();
    let pid = std::process::id() as libc::c_int;
    // SAFETY: the flavour says that `info` is a rusage_info_v4, which it is; the kernel writes no more than that.
    let failed = unsafe { libc::proc_pid_rusage(pid, libc::RUSAGE_INFO_V4, info.as_mut_ptr().cast()) };
    if failed != 0 {
        return resident_peak();
    }
    // SAFETY: the structure is made of integers, zeroed above and filled by the call.
    Ok(unsafe { info.assume_init() }.ri_lifetime_max_phys_footprint)
}

/// `VmHWM` in the text of `/proc/self/status`, in bytes.
#[cfg(any(not(target_vendor = "apple"), test))]
fn status_peak(status: &str) -> Option<u64> {
    let value = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// The largest resident set, where nothing better is known. Linux counts what the process held before it became this
/// program (a parent's memory between fork and exec), so that this is at least [`process_peak_bytes`] and may be far more.
fn resident_peak() -> Result<u64> {
    /// Linux counts kibibytes, Apple bytes.
    const UNIT: u64 = if cfg!(target_vendor = "apple") { 1 } else { 1024 };
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a whole rusage, and the call writes nothing else.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if failed != 0 {
        let cause = std::io::Error::last_os_error();
        return Err(Error::System { what: "how much memory this process has used", call: "getrusage", cause });
    }
    // SAFETY: the structure is made of integers, zeroed above and filled by the call.
    let usage = unsafe { usage.assume_init() };
    Ok(u64::try_from(usage.ru_maxrss).unwrap_or(0).saturating_mul(UNIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_high_water_mark_is_read_from_the_status_text() {
        let status = "Name:\tss\nVmPeak:\t  999999 kB\nVmHWM:\t   24684 kB\nVmRSS:\t    2076 kB\n";
        assert_eq!(status_peak(status), Some(24_684 * 1024));
    }

    #[test]
    fn a_text_without_a_mark_gives_none() {
        for status in ["", "VmRSS:\t 1 kB\n", "VmHWM:\t kB\n", "VmHWM:\t 12 MB\n", "VmHWM:\t 18446744073709551615 kB\n"]
        {
            assert_eq!(status_peak(status), None, "{status:?}");
        }
    }

    #[test]
    fn memory_that_was_used_and_given_back_stays_in_the_peak() -> Result<()> {
        const BYTES: usize = 64 << 20;
        let before = process_peak_bytes()?;
        let mut used = vec![1u8; before as usize + BYTES];
        used.iter_mut().step_by(4096).for_each(|byte| *byte = 2);
        std::hint::black_box(&used);
        drop(used);
        let after = process_peak_bytes()?;
        assert!(after >= before + BYTES as u64, "{before} then {after}");
        let usage = resident_peak()?;
        assert!(usage >= after / 2, "the coarser way says less than was used: {usage}, not at least {after}");
        Ok(())
    }

    #[test]
    fn device_memory_counts_only_where_the_process_does_not_include_it() -> Result<()> {
        let own = Peak::measure(0)?;
        assert_eq!(own.bytes(), own.process);
        assert_eq!(Peak { process: 10, device_extra: 5 }.bytes(), 15);
        Ok(())
    }
}
