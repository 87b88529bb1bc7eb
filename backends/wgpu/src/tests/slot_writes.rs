//! Owns: the promises of slots however records get into them: through staging, where they lie, and in memory of our own on a
//! device that is handed each record as it is written, which is what Metal sees by itself.

use std::sync::Arc;

use ss_backend::{Arithmetic, Backend, Form, Scalar};

use super::fixture::{Half, Random, Shape, Work, bits, contents, in_own_memory, in_place, pool, record, run, staged};
use crate::WgpuBackend;
use crate::device::Device;
use crate::in_place::{Memory, Sharing};
use crate::own_memory::OwnMemory;

/// Hands records on, where a device cannot see memory of this process.
pub(super) struct HandedOn;

impl Sharing for HandedOn {
    unsafe fn chunk(
        &self,
        device: &Device,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<(wgpu::Buffer, Arc<dyn Memory>)> {
        let memory = OwnMemory::new(descriptor.size)?;
        assert!(memory.bytes() as u64 >= descriptor.size);
        Some((device.raw.create_buffer(descriptor), Arc::new(memory)))
    }

    fn publish(&self, queue: &wgpu::Queue, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        queue.write_buffer(buffer, offset, bytes);
    }
}

const SHAPE: Shape = Shape { hidden: 64, inner: 32, group: 32, scale: Scalar::Bf16 };

/// What writes slots where they lie, with chunks of at most so many bytes.
const IN_PLACE: [fn(Option<u64>) -> WgpuBackend; 2] = [in_place, in_own_memory];

/// Records of five slots in chunks of two: both halves of the experts over all of them.
fn outputs(device: &dyn Backend) -> Vec<Vec<u32>> {
    let records: Vec<(u32, Vec<u8>)> = (0..5).map(|slot| (slot, SHAPE.record(u64::from(slot) + 1))).collect();
    let pool = pool(device, SHAPE, 5, &records);
    let inputs = Random(7).floats(5 * SHAPE.hidden);
    let of = |half: Half| {
        let slots = [4u32, 0, 2, 3, 1];
        let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
        let inputs = &inputs[..slots.len() * half.widths(SHAPE).0 as usize];
        let work = Work { half, shape: SHAPE, choices: 1, form, arithmetic, inputs, slots: &slots };
        bits(&run(device, &pool, &work))
    };
    Half::BOTH.map(of).to_vec()
}

#[test]
fn records_are_those_that_were_written_whatever_the_way() {
    let chunk = Some(2 * SHAPE.layout().bytes);
    let through_staging = outputs(&staged(chunk));
    assert!(through_staging.iter().flatten().any(|&word| word != 0));
    for open in IN_PLACE {
        assert_eq!(outputs(&open(chunk)), through_staging);
    }
}

#[test]
fn a_slot_that_is_written_in_place_has_one_writer_at_a_time_may_be_read_and_keeps_what_it_holds() {
    for open in IN_PLACE {
        let device = open(None);
        let pool = device.alloc_pool(&SHAPE.layout(), 3).unwrap();
        let mut writer = device.open_slot(&pool, 1).unwrap();
        assert!(writer.readable());
        assert_eq!(writer.bytes().len() as u64, SHAPE.layout().bytes);
        assert!(writer.bytes().iter().all(|&byte| byte == 0), "zeros at first");
        assert!(device.open_slot(&pool, 1).is_err(), "it is open already");
        assert!(device.open_slot(&pool, 3).is_err(), "there is none");
        let mut other = device.open_slot(&pool, 2).unwrap();
        other.bytes().fill(9);
        writer.bytes().copy_from_slice(&SHAPE.record(3));
        writer.finish().unwrap();
        drop(other);
        let mut again = device.open_slot(&pool, 1).unwrap();
        assert_eq!(again.bytes(), SHAPE.record(3), "what neighbours do is theirs");
        assert_eq!(device.counters().uploaded_bytes, SHAPE.layout().bytes, "one record was handed over");
    }
}

#[test]
fn a_record_that_is_written_in_place_takes_no_submission_and_no_other_memory() {
    let submissions = |device: &WgpuBackend| {
        let pool = device.alloc_pool(&SHAPE.layout(), 3).unwrap();
        let before = device.counters();
        device.open_slot(&pool, 1).unwrap().finish().unwrap();
        device.flush().unwrap();
        let after = device.counters();
        (after.submissions - before.submissions, after.memory_bytes - before.memory_bytes)
    };
    assert_eq!(submissions(&in_place(None)), (0, 0));
    assert_eq!(submissions(&staged(None)), (1, SHAPE.layout().bytes));
}

#[test]
fn what_is_written_while_other_slots_are_read_is_there_for_the_next_work() {
    for open in IN_PLACE {
        let device = open(None);
        let pool = pool(&device, SHAPE, 2, &[(0, SHAPE.record(1))]);
        let (form, arithmetic, inputs) = (Form::Generated, Arithmetic::Exact, Random(3).floats(SHAPE.hidden));
        let work = |slots| Work { half: Half::In, shape: SHAPE, choices: 1, form, arithmetic, inputs: &inputs, slots };
        for round in 2..30 {
            let (recorder, out) = record(&device, &pool, &work(&[0]));
            device.submit(recorder.all()).unwrap();
            let mut writer = device.open_slot(&pool, 1).unwrap();
            writer.bytes().copy_from_slice(&SHAPE.record(round));
            writer.finish().unwrap();
            let first = contents(&device, &out);
            let second = run(&device, &pool, &work(&[1]));
            let alone = super::fixture::pool(&device, SHAPE, 2, &[(1, SHAPE.record(round)), (0, SHAPE.record(1))]);
            assert_eq!(bits(&second), bits(&run(&device, &alone, &work(&[1]))));
            assert_eq!(bits(&first), bits(&run(&device, &alone, &work(&[0]))));
        }
    }
}

#[test]
fn a_pool_goes_when_its_last_work_is_over() {
    for open in IN_PLACE {
        let device = open(None);
        for round in 0..20 {
            let pool = pool(&device, SHAPE, 2, &[(0, SHAPE.record(round)), (1, SHAPE.record(round + 1))]);
            let inputs = Random(round).floats(SHAPE.hidden);
            let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
            let work =
                Work { half: Half::In, shape: SHAPE, choices: 1, form, arithmetic, inputs: &inputs, slots: &[1] };
            let (recorder, out) = record(&device, &pool, &work);
            device.submit(recorder.all()).unwrap();
            drop(recorder);
            let before = device.counters().memory_bytes;
            drop(pool);
            assert_eq!(device.counters().memory_bytes, before - 2 * SHAPE.layout().bytes, "and its memory with it");
            assert!(contents(&device, &out).iter().all(|value| value.is_finite()));
        }
    }
}

#[test]
fn a_writer_outlives_its_pool() {
    for open in IN_PLACE {
        let device = open(None);
        let pool = device.alloc_pool(&SHAPE.layout(), 1).unwrap();
        let mut writer = device.open_slot(&pool, 0).unwrap();
        drop(pool);
        writer.bytes().fill(1);
        assert!(writer.bytes().iter().all(|&byte| byte == 1));
        drop(device);
        writer.bytes().fill(2);
    }
}
