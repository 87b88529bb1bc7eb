//! Owns: the promises of uploads, small and large, whatever way they take: they come in their order, before the work behind them.

use ss_backend::op::Copy;
use ss_backend::{Arithmetic, Backend, Buffer, Readback, Recorder};

use super::fixture::{Random, in_own_memory, in_place, staged};
use crate::WgpuBackend;
use crate::tuning::{MOST_SMALL_BYTES, RING_BYTES};

const BYTES: u64 = 4 * MOST_SMALL_BYTES;

/// What a buffer holds, to its end.
fn contents(device: &WgpuBackend, buffer: &Buffer) -> Vec<u8> {
    let mut read = vec![0; BYTES as usize];
    device.read(buffer, 0, &mut read).unwrap();
    read
}

#[test]
fn uploads_of_all_sizes_to_one_buffer_come_in_their_order() {
    for open in [in_place, in_own_memory, staged] {
        let device = open(None);
        let buffer = device.alloc("numbers", BYTES).unwrap();
        let mut expected = vec![0u8; BYTES as usize];
        let mut random = Random(5);
        let mut written = 0;
        // Past the end of the ring several times, without a wait and with one.
        while written < 6 * RING_BYTES {
            let most = if random.word().is_multiple_of(8) { BYTES } else { MOST_SMALL_BYTES / 2 };
            let bytes = 4 * (1 + u64::from(random.word()) % (most / 4));
            let offset = 4 * (u64::from(random.word()) % ((BYTES - bytes) / 4 + 1));
            let fill: Vec<u8> = (0..bytes).map(|_| random.word() as u8).collect();
            device.upload(&buffer, offset, &fill).unwrap();
            expected[offset as usize..(offset + bytes) as usize].copy_from_slice(&fill);
            written += bytes;
            if random.word().is_multiple_of(16) {
                assert!(contents(&device, &buffer) == expected, "behind {written} bytes");
            }
        }
        assert!(contents(&device, &buffer) == expected);
    }
}

#[test]
fn an_upload_outlives_a_readback_that_is_refused() {
    for open in [in_place, in_own_memory, staged] {
        let device = open(None);
        let buffer = device.alloc("numbers", BYTES).unwrap();
        device.upload(&buffer, 0, &[7; 64]).unwrap();
        assert!(device.read(&buffer, BYTES, &mut [0; 4]).is_err(), "past the end");
        assert_eq!(contents(&device, &buffer)[..64], [7; 64]);
    }
}

#[test]
fn work_sees_what_was_uploaded_before_it_and_not_what_comes_after() {
    for open in [in_place, in_own_memory, staged] {
        let device = open(None);
        let (from, to) = (device.alloc("from", 64).unwrap(), device.alloc("to", 64 * 200).unwrap());
        // Many submissions in flight at once, each with its own bytes in the ring.
        for round in 0..200u64 {
            device.upload(&from, 0, &[round as u8; 64]).unwrap();
            let mut recorder = Recorder::new(Arithmetic::Exact);
            recorder.copy(Copy {
                from: from.clone(),
                from_offset: 0,
                to: to.clone(),
                to_offset: 64 * round,
                bytes: 64,
            });
            device.submit(recorder.all()).unwrap();
        }
        let mut read = vec![0; 64 * 200];
        device.read_all(&mut [Readback { source: &to, offset: 0, into: &mut read }]).unwrap();
        assert!(read.chunks(64).enumerate().all(|(round, bytes)| bytes.iter().all(|&byte| byte == round as u8)));
    }
}

#[test]
fn bytes_stay_in_the_ring_until_their_submission_is_finished() {
    let device = in_place(None);
    let shared = device.shared();
    let (target, bytes) = (shared.grids_buffer().unwrap(), [7; MOST_SMALL_BYTES as usize]);
    let mut queue = shared.queue.lock();
    let ring = queue.ring.as_mut().unwrap();
    let mut put = |finished: u64, count: usize| {
        (0..count).take_while(|_| ring.put((&target, 0), &bytes, finished, |_, _| ())).count()
    };
    let all = (RING_BYTES / MOST_SMALL_BYTES) as usize;
    assert_eq!(put(0, 2 * all), all, "each has a place of its own");
    assert_eq!(put(u64::MAX, 1), 0, "what no submission has copied is not free, whatever is finished");
    let mut encoder = shared.device.raw.create_command_encoder(&wgpu::CommandEncoderDescriptor::default());
    ring.encode(&mut encoder, 9);
    let mut put = |finished: u64| ring.put((&target, 0), &bytes, finished, |_, _| ());
    assert!(!put(8), "submission 9 is not known to be finished");
    assert!(put(9));
    ring.encode(&mut encoder, 10);
    assert!(!ring.put((&target, 0), &[0; MOST_SMALL_BYTES as usize + 4], 10, |_, _| ()), "large");
}
