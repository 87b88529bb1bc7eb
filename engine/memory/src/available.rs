//! Owns: how much memory could be taken without anything being paged out (engine.md section 8.2), and how hard the system says
//! it is pressed (section 8.4).
//! Refuses: deciding what to take; asking again on its own.
//! Invariants: what a container allows is the most there is; a system that does not say is an error, never calm.
//!
//! The Apple half is type-checked only; it has not run on a Mac yet. What it asks is in `apple.rs`, what it makes of the answers here.

use std::fmt;

use crate::{Error, Result};

/// How pressed for memory the system says it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Pressure {
    /// There is enough.
    Normal,
    /// Caches should be given back.
    Warning,
    /// Programs are slowed down by it.
    Critical,
}

impl fmt::Display for Pressure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Pressure::Normal => "normal",
            Pressure::Warning => "warning",
            Pressure::Critical => "critical",
        })
    }
}

/// Pages of memory by what is in them, as Apple's kernel counts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg(any(target_vendor = "apple", test))]
pub(crate) struct Pages {
    /// Bytes of one.
    pub size: u64,
    /// Empty, or read ahead of anybody's asking.
    pub free: u64,
    /// What their owners can do without.
    pub purgeable: u64,
    /// Parts of files, which can be read again.
    pub files: u64,
}

#[cfg(any(target_vendor = "apple", test))]
impl Pages {
    /// Bytes that can be had without paging anything out.
    pub fn reclaimable(self) -> u64 {
        self.size.saturating_mul(self.free.saturating_add(self.purgeable).saturating_add(self.files))
    }
}

impl Pressure {
    /// What Apple's kernel calls 1, 2 and 4.
    #[cfg(any(target_vendor = "apple", test))]
    pub(crate) fn of_level(level: u32) -> Option<Self> {
        match level {
            1 => Some(Pressure::Normal),
            2 => Some(Pressure::Warning),
            4 => Some(Pressure::Critical),
            _ => None,
        }
    }

    /// From the text of Linux's `/proc/pressure/memory`: the share of the last ten seconds, in percent, in which some programs
    /// waited for memory, and all.
    #[cfg(any(target_os = "linux", test))]
    pub(crate) fn of_stalls(text: &str) -> Option<Self> {
        let share = |who: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(who))?;
            let value = line.split_whitespace().find_map(|field| field.strip_prefix("avg10="))?;
            value.parse::<f64>().ok().filter(|share| share.is_finite())
        };
        let (some, all) = (share("some ")?, share("full ")?);
        Some(match (some >= STALLED, all >= STALLED) {
            (_, true) => Pressure::Critical,
            (true, false) => Pressure::Warning,
            (false, false) => Pressure::Normal,
        })
    }
}

/// Percent of the time in which waiting for memory counts as pressure.
#[cfg(any(target_os = "linux", test))]
const STALLED: f64 = 10.0;

/// `MemAvailable` in the text of `/proc/meminfo`, in bytes.
#[cfg(any(target_os = "linux", test))]
fn mem_available(meminfo: &str) -> Option<u64> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kilobytes: u64 = value.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    kilobytes.checked_mul(1024)
}

/// Bytes that this process could take without anything being paged out.
///
/// # Errors
/// [`Error::System`] where the system does not say.
#[cfg(target_os = "linux")]
pub fn reclaimable_bytes() -> Result<u64> {
    const FILE: &str = "/proc/meminfo";
    let text = std::fs::read_to_string(FILE).map_err(|cause| unsaid(RECLAIMABLE, FILE, cause))?;
    let bytes =
        mem_available(&text).ok_or_else(|| unsaid(RECLAIMABLE, FILE, std::io::ErrorKind::InvalidData.into()))?;
    Ok(crate::Machine::probe()?.limit.map_or(bytes, |limit| bytes.min(limit)))
}

/// How pressed for memory the system is.
///
/// # Errors
/// [`Error::System`] where the system does not say: Linux without pressure stall information.
#[cfg(target_os = "linux")]
pub fn pressure() -> Result<Pressure> {
    const FILE: &str = "/proc/pressure/memory";
    let text = std::fs::read_to_string(FILE).map_err(|cause| unsaid(PRESSED, FILE, cause))?;
    Pressure::of_stalls(&text).ok_or_else(|| unsaid(PRESSED, FILE, std::io::ErrorKind::InvalidData.into()))
}

/// Bytes that this process could take without anything being paged out.
///
/// # Errors
/// [`Error::System`] where the system does not say.
#[cfg(target_vendor = "apple")]
pub fn reclaimable_bytes() -> Result<u64> {
    Ok(crate::apple::pages().map_err(|cause| unsaid(RECLAIMABLE, "host_statistics64", cause))?.reclaimable())
}

/// How pressed for memory the system is.
///
/// # Errors
/// [`Error::System`] where the system does not say.
#[cfg(target_vendor = "apple")]
pub fn pressure() -> Result<Pressure> {
    let level = crate::apple::pressure_level().map_err(|cause| unsaid(PRESSED, "sysctlbyname", cause))?;
    Pressure::of_level(level).ok_or_else(|| unsaid(PRESSED, "sysctlbyname", std::io::ErrorKind::InvalidData.into()))
}

/// Not told on this system.
///
/// # Errors
/// Always.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn reclaimable_bytes() -> Result<u64> {
    Err(unsaid(RECLAIMABLE, "nothing", std::io::ErrorKind::Unsupported.into()))
}

/// Not told on this system.
///
/// # Errors
/// Always.
#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
pub fn pressure() -> Result<Pressure> {
    Err(unsaid(PRESSED, "nothing", std::io::ErrorKind::Unsupported.into()))
}

const RECLAIMABLE: &str = "how much memory could be taken";
const PRESSED: &str = "how pressed for memory it is";

fn unsaid(what: &'static str, call: &'static str, cause: std::io::Error) -> Error {
    Error::System { what, call, cause }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_that_can_be_read_again_or_done_without_are_reclaimable() {
        let pages = Pages { size: 16_384, free: 10, purgeable: 3, files: 7 };
        assert_eq!(pages.reclaimable(), 20 * 16_384);
        assert_eq!(Pages { free: u64::MAX, ..pages }.reclaimable(), u64::MAX, "nonsense is no panic");
    }

    #[test]
    fn levels_of_pressure_are_told_apart_and_unknown_ones_are_not_calm() {
        let levels = [0, 1, 2, 3, 4].map(Pressure::of_level);
        assert_eq!(levels, [None, Some(Pressure::Normal), Some(Pressure::Warning), None, Some(Pressure::Critical)]);
        assert!(Pressure::Normal < Pressure::Warning && Pressure::Warning < Pressure::Critical);
        assert_eq!(Pressure::Warning.to_string(), "warning");
    }

    #[test]
    fn stalls_of_some_are_a_warning_and_of_all_critical() {
        let text = |some: &str, full: &str| {
            format!(
                "some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10={full} avg60=9.00 avg300=0.00 total=0\n"
            )
        };
        assert_eq!(Pressure::of_stalls(&text("0.00", "0.00")), Some(Pressure::Normal));
        assert_eq!(Pressure::of_stalls(&text("9.99", "0.10")), Some(Pressure::Normal));
        assert_eq!(Pressure::of_stalls(&text("10.00", "2.00")), Some(Pressure::Warning));
        assert_eq!(Pressure::of_stalls(&text("55.10", "31.00")), Some(Pressure::Critical));
        for odd in
            ["", "some avg60=1", "some avg10=x\nfull avg10=0.0", "some avg10=NaN\nfull avg10=NaN", "some avg10=1.0"]
        {
            assert_eq!(Pressure::of_stalls(odd), None, "{odd:?}");
        }
    }

    #[test]
    fn available_memory_is_read_from_meminfo() {
        assert_eq!(mem_available("MemTotal: 9 kB\nMemAvailable:   1024 kB\n"), Some(1 << 20));
        for odd in ["", "MemAvailable: kB", "MemAvailable: 5 MB", "MemAvailable: 18446744073709551615 kB"] {
            assert_eq!(mem_available(odd), None, "{odd:?}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn this_machine_has_some_memory_left_and_no_more_than_it_has() -> Result<()> {
        let (left, machine) = (reclaimable_bytes()?, crate::Machine::probe()?);
        assert!(left > 0 && left <= machine.physical, "{left} of {machine:?}");
        // Not every kernel tells of stalls.
        if let Ok(pressure) = pressure() {
            assert!(pressure <= Pressure::Critical);
        }
        Ok(())
    }
}
