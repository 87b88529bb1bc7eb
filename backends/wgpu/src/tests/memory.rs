//! Owns: the promises of memory, slots and submissions, and the refusals of what the device cannot do.

use ss_backend::op::Copy;
use ss_backend::{Arithmetic, Backend, Error, Form, Recorder, Scalar};

use super::fixture::{Half, Random, Shape, Work, bits, contents, filled, open, pool, record, run, staged};
use crate::{AdapterChoice, ChunkAccess, Options, WgpuBackend, adapters, tuning};

const SMALL: Shape = Shape { hidden: 64, inner: 32, group: 32, scale: Scalar::Bf16 };

fn device() -> WgpuBackend {
    open(None, ChunkAccess::Array, None)
}

fn work<'a>(inputs: &'a [f32], slots: &'a [u32]) -> Work<'a> {
    let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
    Work { half: Half::In, shape: SMALL, choices: 1, form, arithmetic, inputs, slots }
}

#[test]
fn software_is_listed_and_named_for_what_it_is() {
    let device = device();
    assert_eq!(device.facts().kind, ss_backend::DeviceKind::Software);
    assert!(adapters().iter().any(|adapter| adapter.device.device == device.facts().device));
}

#[test]
fn a_missing_adapter_is_refused_in_one_sentence() {
    let options = Options::new(AdapterChoice::Named("no such card".to_owned()));
    let refusal = WgpuBackend::open(options).err().unwrap().to_string();
    assert!(refusal.contains("`no such card`") && refusal.contains("llvmpipe"), "{refusal}");
}

#[test]
fn buffers_begin_as_zeros_and_keep_what_is_uploaded() {
    let device = device();
    let buffer = device.alloc("test", 16).unwrap();
    device.upload(&buffer, 4, bytemuck::cast_slice(&[1.5f32, 2.5])).unwrap();
    assert_eq!(contents(&device, &buffer), [0.0, 1.5, 2.5, 0.0]);
    let mut middle = [0.0f32; 2];
    device.read(&buffer, 8, bytemuck::cast_slice_mut(&mut middle)).unwrap();
    assert_eq!(middle, [2.5, 0.0]);
}

#[test]
fn copies_run_in_the_order_recorded() {
    let device = device();
    let (a, b) = (filled(&device, &[1.0f32, 2.0, 3.0]), filled(&device, &[0.0f32; 3]));
    let mut recorder = Recorder::new(Arithmetic::Exact);
    recorder.copy(Copy { from: a.clone(), from_offset: 4, to: b.clone(), to_offset: 0, bytes: 8 });
    recorder.copy(Copy { from: b.clone(), from_offset: 0, to: a.clone(), to_offset: 8, bytes: 4 });
    let submission = device.submit(recorder.all()).unwrap();
    device.wait(submission).unwrap();
    device.wait(submission).unwrap();
    assert_eq!(contents(&device, &a), [1.0, 2.0, 2.0]);
    assert_eq!(contents(&device, &b), [2.0, 3.0, 0.0]);
}

#[test]
fn ranges_outside_a_buffer_are_refused() {
    let device = device();
    let buffer = device.alloc("test", 16).unwrap();
    for (offset, length) in [(16, 4), (12, 8), (2, 4), (0, 3), (u64::MAX - 3, 8)] {
        let error = device.upload(&buffer, offset, &vec![0; length]).unwrap_err().to_string();
        assert!(error.contains("16 bytes"), "{error}");
        assert!(device.read(&buffer, offset, &mut vec![0; length]).is_err());
    }
    assert_eq!(contents(&device, &buffer), [0.0; 4]);
}

#[test]
fn memory_is_counted_until_its_last_handle_is_dropped() {
    let device = device();
    let before = device.counters().memory_bytes;
    let pool = device.alloc_pool(&SMALL.layout(), 5).unwrap();
    assert_eq!(device.counters().memory_bytes - before, 5 * SMALL.layout().bytes);
    drop(pool);
    assert_eq!(device.counters().memory_bytes, before);
    assert!(device.counters().peak_memory_bytes >= before + 5 * SMALL.layout().bytes);
}

#[test]
fn what_the_device_has_no_room_for_is_refused_before_it_is_made() {
    let device = device();
    let error = device.alloc("a very long cache", 1 << 60).unwrap_err().to_string();
    assert!(error.contains("a very long cache"), "{error}");
}

#[test]
fn a_slot_written_again_through_staging_holds_the_later_record_even_behind_unfinished_work() {
    let device = staged(None);
    let inputs = Random(1).floats(SMALL.hidden);
    let of = |seed| {
        let pool = pool(&device, SMALL, 1, &[(0, SMALL.record(seed))]);
        run(&device, &pool, &work(&inputs, &[0]))
    };
    let (first, second) = (of(1), of(2));
    assert_ne!(bits(&first), bits(&second));

    let pool = pool(&device, SMALL, 1, &[(0, SMALL.record(1))]);
    let (recorder, early) = record(&device, &pool, &work(&inputs, &[0]));
    device.submit(recorder.all()).unwrap();
    let mut writer = device.open_slot(&pool, 0).unwrap();
    writer.bytes().copy_from_slice(&SMALL.record(2));
    writer.finish().unwrap();
    let late = run(&device, &pool, &work(&inputs, &[0]));
    assert_eq!(bits(&contents(&device, &early)), bits(&first));
    assert_eq!(bits(&late), bits(&second));
}

#[test]
fn a_writer_of_staging_that_is_dropped_leaves_its_slot_as_it_was() {
    let device = staged(None);
    let inputs = Random(1).floats(SMALL.hidden);
    let pool = pool(&device, SMALL, 2, &[(1, SMALL.record(1))]);
    let before = run(&device, &pool, &work(&inputs, &[1]));
    let mut writer = device.open_slot(&pool, 1).unwrap();
    writer.bytes().fill(0xaa);
    assert!(device.open_slot(&pool, 1).is_err(), "one slot was opened twice");
    drop(writer);
    assert_eq!(bits(&run(&device, &pool, &work(&inputs, &[1]))), bits(&before));
    assert!(device.open_slot(&pool, 1).is_ok());
    assert!(device.open_slot(&pool, 2).is_err(), "a slot past the pool was opened");
}

#[test]
fn staging_stays_small_however_many_records_are_written() {
    let device = staged(None);
    let pool = device.alloc_pool(&SMALL.layout(), 4).unwrap();
    let before = device.counters().memory_bytes;
    for write in 0..6 * tuning::MOST_PENDING_SLOTS as u32 {
        device.open_slot(&pool, write % 4).unwrap().finish().unwrap();
    }
    let staged = device.counters().memory_bytes - before;
    assert!(device.counters().submissions >= 6);
    assert!(staged <= 3 * tuning::MOST_PENDING_SLOTS as u64 * SMALL.layout().bytes, "{staged} bytes of staging");
}

#[test]
fn a_record_larger_than_a_chunk_is_refused_with_both_sizes() {
    let device = open(Some(100), ChunkAccess::Array, None);
    let error = device.alloc_pool(&SMALL.layout(), 4).unwrap_err().to_string();
    assert!(error.contains("100 bytes") && error.contains(&SMALL.layout().bytes.to_string()), "{error}");
}

#[test]
fn buffers_too_small_for_their_operation_are_refused() {
    let device = device();
    let pool = pool(&device, SMALL, 1, &[(0, SMALL.record(1))]);
    let short = Random(1).floats(SMALL.hidden - 1);
    let (recorder, _) = record(&device, &pool, &work(&short, &[0]));
    assert!(device.submit(recorder.all()).is_err());
}

#[test]
fn a_lost_device_is_an_error_of_every_later_call_and_never_a_panic() {
    let device = device();
    let pool = pool(&device, SMALL, 1, &[(0, SMALL.record(1))]);
    let inputs = Random(1).floats(SMALL.hidden);
    let (recorder, out) = record(&device, &pool, &work(&inputs, &[0]));
    device.shared().device.raw.destroy();
    let lost = |result: ss_backend::Result<()>| matches!(result, Err(Error::Lost { .. }));
    assert!(lost(device.submit(recorder.all()).map(drop)), "submit");
    assert!(lost(device.alloc("test", 4).map(drop)), "alloc");
    assert!(lost(device.upload(&out, 0, &[0; 4])), "upload");
    assert!(lost(device.read(&out, 0, &mut [0; 4])), "read");
    assert!(lost(device.open_slot(&pool, 0).and_then(|writer| writer.finish())), "slot");
}
