//! Owns: how much memory this machine has, a container's limit being its size (engine.md section 8.6).
//! Refuses: how much of it is free; that changes.
//! Invariants: [`Machine::memory`] is never more than the physical memory.

use crate::{Error, Result};

/// What memory there is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Physical memory in bytes.
    pub physical: u64,
    /// The tightest limit of the containers around this process in bytes, if there is one.
    pub limit: Option<u64>,
}

impl Machine {
    /// Asks the system.
    ///
    /// # Errors
    /// [`Error::System`] when it does not say how much memory it has.
    pub fn probe() -> Result<Self> {
        Ok(Machine { physical: physical_bytes()?, limit: container_limit() })
    }

    /// Bytes this process may count on at most: physical memory or the container's limit, whichever is less.
    pub fn memory(self) -> u64 {
        self.limit.map_or(self.physical, |limit| limit.min(self.physical))
    }
}

/// The version of the system, if it says: the kernel's on Linux, macOS's own there.
pub fn system_release() -> Option<String> {
    release().filter(|text| !text.is_empty())
}

#[cfg(target_vendor = "apple")]
use crate::apple::release;

#[cfg(target_os = "linux")]
fn release() -> Option<String> {
    Some(std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?.trim().to_owned())
}

#[cfg(not(any(target_os = "linux", target_vendor = "apple")))]
fn release() -> Option<String> {
    None
}

fn physical_bytes() -> Result<u64> {
    Ok(sysconf(libc::_SC_PHYS_PAGES)?.saturating_mul(sysconf(libc::_SC_PAGESIZE)?))
}

fn sysconf(name: libc::c_int) -> Result<u64> {
    // SAFETY: sysconf takes a number and touches no memory of ours.
    let value = unsafe { libc::sysconf(name) };
    u64::try_from(value).ok().filter(|&value| value > 0).ok_or_else(|| Error::System {
        what: "how much memory it has",
        call: "sysconf",
        cause: std::io::Error::last_os_error(),
    })
}

/// The tightest container limit. A file that cannot be read limits nothing.
#[cfg(target_os = "linux")]
fn container_limit() -> Option<u64> {
    use crate::cgroup;
    let cgroup = std::fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let files = cgroup::limit_files(&cgroup, &mounts);
    files.iter().filter_map(|file| cgroup::limit(&std::fs::read_to_string(file).ok()?)).min()
}

#[cfg(not(target_os = "linux"))]
fn container_limit() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_limit_is_the_machine_s_size_where_it_is_smaller() {
        let machine = |limit| Machine { physical: 16_000, limit }.memory();
        assert_eq!(machine(None), 16_000);
        assert_eq!(machine(Some(4_000)), 4_000);
        assert_eq!(machine(Some(u64::MAX)), 16_000, "v1 writes a huge number for no limit");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_system_says_its_version() {
        assert!(system_release().is_some_and(|text| text.starts_with(|c: char| c.is_ascii_digit())));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn the_probe_agrees_with_proc_meminfo() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let text = std::fs::read_to_string("/proc/meminfo")?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:")).ok_or("no MemTotal")?;
        let kilobytes: u64 = line.trim().trim_end_matches(" kB").parse()?;
        let machine = Machine::probe()?;
        assert!(machine.physical.abs_diff(kilobytes * 1024) < machine.physical / 100, "{machine:?}, {kilobytes} kB");
        assert!(machine.memory() > 0 && machine.memory() <= machine.physical);
        Ok(())
    }
}
