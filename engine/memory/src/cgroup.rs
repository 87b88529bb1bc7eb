//! Owns: where the memory limits of a container are written, for cgroup v1 and v2 (engine.md section 8.6).
//! Refuses: IO; the texts of `/proc` and of limit files come in as strings.
//! Invariants: every limit between this process's own group and the mount point is named, because the tightest one counts.

use std::path::{Component, Path, PathBuf};

/// The files that hold this process's memory limits, given the texts of `/proc/self/cgroup` and `/proc/self/mountinfo`.
pub(crate) fn limit_files(cgroup: &str, mountinfo: &str) -> Vec<PathBuf> {
    let mounts = mountinfo.lines().filter_map(Mount::parse);
    mounts.flat_map(|mount| mount.limit_files(cgroup)).collect()
}

/// The limit in such a file: bytes, or `None` for `max` and for what is no number.
pub(crate) fn limit(text: &str) -> Option<u64> {
    text.trim().parse().ok()
}

/// A mounted hierarchy that can limit memory.
struct Mount<'a> {
    /// The group that is mounted.
    root: &'a str,
    /// Where it is mounted.
    point: &'a str,
    unified: bool,
}

impl<'a> Mount<'a> {
    /// Reads a line of mountinfo: `id parent device root point options... - type source super-options`.
    fn parse(line: &'a str) -> Option<Self> {
        let (head, tail) = line.split_once(" - ")?;
        let mut head = head.split(' ').skip(3);
        let (root, point) = (head.next()?, head.next()?);
        let mut tail = tail.split(' ');
        let unified = match (tail.next()?, tail.nth(1)) {
            ("cgroup2", _) => true,
            ("cgroup", Some(options)) if options.split(',').any(|o| o == "memory") => false,
            _ => return None,
        };
        Some(Mount { root, point, unified })
    }

    /// Limit files from this process's group up to the mount point.
    fn limit_files(&self, cgroup: &str) -> Vec<PathBuf> {
        let name = if self.unified { "memory.max" } else { "memory.limit_in_bytes" };
        let own = cgroup.lines().find_map(|line| self.group_in(line)).unwrap_or(Path::new(""));
        own.ancestors().map(|group| Path::new(self.point).join(group).join(name)).collect()
    }

    /// The process's group below the mount point, from a line `id:controllers:path` that belongs to this hierarchy.
    fn group_in(&self, line: &'a str) -> Option<&'a Path> {
        let mut fields = line.splitn(3, ':');
        let (id, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
        let ours = match self.unified {
            true => id == "0" && controllers.is_empty(),
            false => controllers.split(',').any(|c| c == "memory"),
        };
        // A path outside the mounted group (`/..`, or the host's name for it) means: the mounted group itself.
        let inside = Path::new(path).strip_prefix(self.root).unwrap_or(Path::new(""));
        let plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        ours.then_some(if plain { inside } else { Path::new("") })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(cgroup: &str, mountinfo: &str) -> Vec<String> {
        limit_files(cgroup, mountinfo).iter().map(|path| path.display().to_string()).collect()
    }

    const V2: &str = "24 1 0:22 / /proc rw - proc proc rw\n\
                      30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn a_v2_process_is_limited_by_its_group_and_every_group_above() {
        assert_eq!(
            named("0::/user.slice/run.scope\n", V2),
            [
                "/sys/fs/cgroup/user.slice/run.scope/memory.max",
                "/sys/fs/cgroup/user.slice/memory.max",
                "/sys/fs/cgroup/memory.max",
            ]
        );
    }

    #[test]
    fn a_container_sees_its_own_group_as_the_mount_point() {
        assert_eq!(named("0::/\n", V2), ["/sys/fs/cgroup/memory.max"]);
        assert_eq!(named("0::/../other\n", V2), ["/sys/fs/cgroup/memory.max"]);
    }

    #[test]
    fn a_v1_process_is_limited_by_the_memory_hierarchy_only() {
        let mounts = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                      32 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu\n\
                      35 31 0:32 /docker/ab /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n";
        let own = "9:name=systemd:/docker/ab\n4:memory:/docker/ab/job\n1:cpu:/elsewhere\n";
        assert_eq!(
            named(own, mounts),
            ["/sys/fs/cgroup/memory/job/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.limit_in_bytes"]
        );
        let host_name = "4:memory:/host/name/of/it\n";
        assert_eq!(named(host_name, mounts), ["/sys/fs/cgroup/memory/memory.limit_in_bytes"]);
    }

    #[test]
    fn without_cgroups_there_is_no_limit_and_odd_text_is_harmless() {
        assert!(named("", "").is_empty());
        assert!(named("0::/x", "nonsense\n1 2 - \n - cgroup2\n1 2 3 - cgroup2 a b\n").is_empty());
        assert_eq!(named(":::\n0\n", V2), ["/sys/fs/cgroup/memory.max"]);
    }

    #[test]
    fn a_limit_is_a_number_or_none() {
        assert_eq!(limit("2147483648\n"), Some(2_147_483_648));
        assert_eq!(limit("9223372036854771712\n"), Some(9_223_372_036_854_771_712));
        assert_eq!(limit("max\n"), None);
        assert_eq!(limit(""), None);
        assert_eq!(limit("-1"), None);
    }
}
