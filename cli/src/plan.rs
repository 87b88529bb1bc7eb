//! Owns: how many slots a run gets when nobody says, and whether a run fits the machine. Pure functions.
//! Refuses: planning for speed; that is a planner's work.
//! Invariants: a flag is never changed; what does not fit is refused before anything is allocated, with the arithmetic.

/// What a run needs and what there is, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Need {
    /// The trunk.
    pub trunk: u64,
    /// One slot.
    pub slot: u64,
    /// Scratch memory of a pass.
    pub workspace: u64,
    /// n-gram rows kept in memory.
    pub row_cache: u64,
    /// Expert records kept in the machine's memory besides the slots.
    pub ram_cache: u64,
    /// Memory of the machine.
    pub machine: u64,
    /// Whether trunk, pool and scratch lie in memory of the device's own. How much it has nobody says: a driver refuses
    /// what it has no room for.
    pub own_memory: bool,
}

/// A run that does not fit.
#[derive(Debug, thiserror::Error)]
#[error("this machine has {machine:.2} GB, and the model would take {total:.2} GB: {parts}")]
pub struct NoRoom {
    machine: f64,
    total: f64,
    parts: String,
}

/// Slots when nobody says: all of them if the pool takes at most a quarter of the machine, else what that quarter holds,
/// but never less than the floor.
pub fn default_slots(all: u32, floor: u32, need: &Need) -> u32 {
    let quarter = (need.machine / 4 / need.slot.max(1)).min(u64::from(all)) as u32;
    quarter.max(floor).min(all)
}

/// A read group takes at most one byte of so many of the machine's.
const GROUP_SHARE: u64 = 16;

/// Tokens of a read group: as many as were asked for, in whole passes of `pass` rows, or as many as memory is for; `beside` is
/// what each pass but the first takes.
pub fn read_group(asked: u32, pass: u32, beside: u64, machine: u64) -> u32 {
    let most = machine / GROUP_SHARE / beside.max(1) + 1;
    let passes = u64::from(asked / pass.max(1)).min(most);
    u32::try_from(passes).unwrap_or(u32::MAX).saturating_mul(pass)
}

/// Refuses a pool that the machine cannot hold.
///
/// # Errors
/// [`NoRoom`] with the arithmetic.
pub fn check_room(slots: u32, need: &Need) -> Result<(), NoRoom> {
    let pool = u64::from(slots).saturating_mul(need.slot);
    let on_device = [need.trunk, pool, need.workspace].into_iter().fold(0, u64::saturating_add);
    let on_host = need.row_cache.saturating_add(need.ram_cache);
    let total = if need.own_memory { on_host } else { on_device.saturating_add(on_host) };
    if total <= need.machine {
        return Ok(());
    }
    let gb = |bytes: u64| bytes as f64 / 1e9;
    let mut parts = match need.own_memory {
        true => format!("n-gram rows {:.2}; ask for less with `--ngram-cache-mb`", gb(need.row_cache)),
        false => format!(
            "trunk {:.2} + {slots} slots {:.2} + scratch {:.2} + n-gram rows {:.2}; ask for less with `--slots`, \
             `--prefill-pass`, `--read-group` or `--ngram-cache-mb`",
            gb(need.trunk),
            gb(pool),
            gb(need.workspace),
            gb(need.row_cache)
        ),
    };
    if need.ram_cache > 0 {
        parts = format!("records {:.2} (`--ram-cache-gb`) + {parts}", gb(need.ram_cache));
    }
    Err(NoRoom { machine: gb(need.machine), total: gb(total), parts })
}

#[cfg(test)]
mod tests {
    use super::*;

    const RELEASED: Need = Need {
        trunk: 2_924_005_400,
        slot: 2_764_800,
        workspace: 200_000_000,
        row_cache: 64_000_000,
        ram_cache: 0,
        machine: 16_000_000_000,
        own_memory: false,
    };

    #[test]
    fn a_small_model_stays_whole_and_a_large_one_takes_a_quarter() {
        assert_eq!(default_slots(512, 128, &Need { slot: 30_000, ..RELEASED }), 512);
        assert_eq!(default_slots(24_576, 640, &RELEASED), 1446);
    }

    #[test]
    fn a_tiny_machine_still_gets_the_floor() {
        assert_eq!(default_slots(24_576, 640, &Need { machine: 4_000_000_000, ..RELEASED }), 640);
    }

    #[test]
    fn a_read_group_is_whole_passes_that_a_part_of_memory_holds() {
        let (gb, pass) = (1_000_000_000, 512);
        assert_eq!(read_group(8192, pass, gb / 10, 160 * gb), 8192);
        assert_eq!(read_group(8192, pass, gb / 10, 16 * gb), 11 * pass);
        assert_eq!(read_group(8192, pass, gb, gb), pass, "a pass of its own is always there");
        assert_eq!(read_group(1000, pass, 1, gb), pass);
        assert_eq!((read_group(0, pass, 1, gb), read_group(511, pass, 0, gb)), (0, 0));
    }

    #[test]
    fn what_does_not_fit_is_refused_with_the_arithmetic() {
        assert!(check_room(640, &RELEASED).is_ok());
        let text = check_room(24_576, &RELEASED).unwrap_err().to_string();
        assert!(
            text.contains("24576 slots 67.95") && text.contains("has 16.00 GB") && text.contains("--slots"),
            "{text}"
        );
    }

    #[test]
    fn memory_of_a_device_is_not_the_machines() {
        let need = Need { own_memory: true, ..RELEASED };
        assert!(check_room(24_576, &need).is_ok());
        let text = check_room(24_576, &Need { row_cache: 17_000_000_000, ..need }).unwrap_err().to_string();
        assert!(text.contains("`--ngram-cache-mb`"), "{text}");
    }

    #[test]
    fn records_in_memory_are_the_machine_s_whatever_the_device_has() {
        for own_memory in [false, true] {
            let need = Need { own_memory, ram_cache: 17_000_000_000, ..RELEASED };
            let text = check_room(640, &need).unwrap_err().to_string();
            assert!(text.contains("records 17.00 (`--ram-cache-gb`)"), "{text}");
        }
    }

    #[test]
    fn what_no_number_holds_does_not_fit_either() {
        assert!(check_room(u32::MAX, &Need { slot: u64::MAX, row_cache: u64::MAX, ..RELEASED }).is_err());
    }
}
