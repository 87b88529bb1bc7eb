//! Owns: the promises of pools in memory of our own, on a device that is handed each record as it is written: what Metal sees
//! by itself.

use ss_backend::{Arithmetic, Backend, Form, Scalar};

use super::fixture::{Half, Random, Shape, Work, bits, contents, in_own_memory, pool, record, run, shared};
use crate::own_memory::{OwnMemory, Sharing};

/// Hands records on, where a device cannot see memory of this process.
pub(super) struct HandedOn;

impl Sharing for HandedOn {
    unsafe fn buffer(
        &self,
        device: &wgpu::Device,
        memory: &OwnMemory,
        descriptor: &wgpu::BufferDescriptor<'_>,
    ) -> Option<wgpu::Buffer> {
        assert!(memory.bytes() as u64 >= descriptor.size);
        Some(device.create_buffer(descriptor))
    }

    fn publish(&self, queue: &wgpu::Queue, buffer: &wgpu::Buffer, offset: u64, bytes: &[u8]) {
        queue.write_buffer(buffer, offset, bytes);
    }
}

const SHAPE: Shape = Shape { hidden: 64, inner: 32, group: 32, scale: Scalar::Bf16 };

/// Records of five slots in chunks of two, in memory of our own and through staging: both halves of the experts over all of them.
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
fn records_in_memory_of_our_own_are_those_that_were_written() {
    let own = in_own_memory(Some(2 * SHAPE.layout().bytes));
    let through_staging = outputs(shared());
    assert_eq!(outputs(&own), through_staging);
    assert!(through_staging.iter().flatten().any(|&word| word != 0));
}

#[test]
fn a_slot_of_our_own_has_one_writer_at_a_time_may_be_read_and_keeps_what_it_holds() {
    let own = in_own_memory(None);
    let pool = own.alloc_pool(&SHAPE.layout(), 3).unwrap();
    let mut writer = own.open_slot(&pool, 1).unwrap();
    assert!(writer.readable());
    assert_eq!(writer.bytes().len() as u64, SHAPE.layout().bytes);
    assert!(writer.bytes().iter().all(|&byte| byte == 0), "zeros at first");
    assert!(own.open_slot(&pool, 1).is_err(), "it is open already");
    assert!(own.open_slot(&pool, 3).is_err(), "there is none");
    let mut other = own.open_slot(&pool, 2).unwrap();
    other.bytes().fill(9);
    writer.bytes().copy_from_slice(&SHAPE.record(3));
    writer.finish().unwrap();
    drop(other);
    let mut again = own.open_slot(&pool, 1).unwrap();
    assert_eq!(again.bytes(), SHAPE.record(3), "what neighbours do is theirs");
    assert_eq!(own.counters().uploaded_bytes, SHAPE.layout().bytes, "one record was handed over");
}

#[test]
fn a_pool_goes_when_its_last_work_is_over() {
    let own = in_own_memory(None);
    for round in 0..20 {
        let pool = pool(&own, SHAPE, 2, &[(0, SHAPE.record(round)), (1, SHAPE.record(round + 1))]);
        let inputs = Random(round).floats(SHAPE.hidden);
        let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
        let work = Work { half: Half::In, shape: SHAPE, choices: 1, form, arithmetic, inputs: &inputs, slots: &[1] };
        let (recorder, out) = record(&own, &pool, &work);
        own.submit(recorder.all()).unwrap();
        drop(recorder);
        let before = own.counters().memory_bytes;
        drop(pool);
        assert_eq!(own.counters().memory_bytes, before - 2 * SHAPE.layout().bytes, "and its memory with it");
        assert!(contents(&own, &out).iter().all(|value| value.is_finite()));
    }
}
