//! Owns: the promise that a device is kept awake while somebody asks for it, and left alone otherwise.

use std::time::{Duration, Instant};

use ss_backend::Backend;

use super::fixture::{kept_awake, open};
use crate::{ChunkAccess, WgpuBackend};

fn pulses(device: &WgpuBackend) -> u64 {
    device.shared().pulse.as_ref().map_or(0, crate::pulse::Pulse::count)
}

/// Waits for pulses past `before`, but not for ever.
fn beats(device: &WgpuBackend, before: u64) -> bool {
    let begun = Instant::now();
    while pulses(device) <= before && begun.elapsed() < Duration::from_secs(20) {
        std::thread::sleep(Duration::from_millis(1));
    }
    pulses(device) > before
}

#[test]
fn a_device_is_kept_awake_while_it_is_held_and_no_longer() {
    let device = kept_awake();
    assert_eq!(pulses(&device), 0, "nobody holds it");
    let (first, second) = (device.keep_awake(), device.keep_awake());
    assert!(first.is_some() && beats(&device, 10), "pulses come");
    drop(first);
    let before = pulses(&device);
    assert!(beats(&device, before), "the second still holds it");
    drop(second);
    // One may be on its way.
    std::thread::sleep(Duration::from_millis(100));
    let after = pulses(&device);
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(pulses(&device), after, "nobody holds it any more");
    let _again = device.keep_awake();
    assert!(beats(&device, after), "and once more");
    assert_eq!(device.counters().submissions, 0, "pulses are nobody's work");
}

#[test]
fn a_device_that_may_slow_down_is_left_alone() {
    let device = open(None, ChunkAccess::Array, None);
    assert!(device.keep_awake().is_none());
}
