//! Owns: the promises of the expert kernels: parity, row invariance (engine.md I1, I2, 3.7) and repeatability.

use std::collections::HashMap;

use ss_backend::{Arithmetic, Backend, Form, NONE, Scalar};
use ss_reference::Reference;

use super::fixture::{Half, Mutation, Random, Shape, UNTOUCHED, Work, bits, open, pool, run};
use super::oracle::{self, Numbers};
use crate::{ChunkAccess, WgpuBackend};

/// Largest relative error of a sum in F32 over at most 2624 products; the worst seen is a quarter of it.
const TOLERANCE: f64 = 8e-7;

const POOL_SLOTS: u32 = 7;

/// Chunks of two records each, so that seven slots take four.
fn two_records(shape: Shape) -> Option<u64> {
    Some(2 * shape.layout().bytes + 1)
}

/// Records for all slots of the pool.
fn records(shape: Shape) -> Vec<(u32, Vec<u8>)> {
    (0..POOL_SLOTS).map(|slot| (slot, shape.record(u64::from(slot) + 1))).collect()
}

/// Slots for `pairs` pairs that use every chunk.
fn scattered(pairs: u32) -> Vec<u32> {
    (0..pairs).map(|pair| (pair * 3 + 1) % POOL_SLOTS).collect()
}

/// Row of inputs that a pair reads.
fn input_of<'a>(work: &Work<'a>, pair: usize) -> &'a [f32] {
    let width = work.half.widths(work.shape).0 as usize;
    let row = if work.half == Half::In { pair / work.choices as usize } else { pair };
    &work.inputs[row * width..][..width]
}

fn wanted(work: &Work<'_>, records: &[(u32, Vec<u8>)], numbers: Numbers) -> Vec<f64> {
    let pair = |(pair, &slot): (usize, &u32)| {
        oracle::expert(work.half, work.shape, &records[slot as usize].1, input_of(work, pair), numbers)
    };
    work.slots.iter().enumerate().flat_map(pair).collect()
}

/// Runs both halves over several chunks, compares them with the oracle, and returns the larger error.
fn worst_error(shape: Shape, rows: u32, choices: u32, access: ChunkAccess) -> f64 {
    let backend = open(two_records(shape), access, None);
    let records = records(shape);
    let pool = pool(&backend, shape, POOL_SLOTS, &records);
    let slots = scattered(rows * choices);
    let mut worst = 0.0f64;
    for half in Half::BOTH {
        let inputs = if half == Half::In { rows } else { rows * choices } * half.widths(shape).0;
        let inputs = Random(u64::from(rows)).floats(inputs);
        let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
        let work = Work { half, shape, choices, form, arithmetic, inputs: &inputs, slots: &slots };
        let before = backend.counters().dispatches;
        let got = run(&backend, &pool, &work);
        // One dispatch for all chunks or one for each of the four.
        let dispatches = if access == ChunkAccess::Array { 1 } else { 4 };
        assert_eq!(backend.counters().dispatches - before, dispatches, "{access:?}");
        worst = worst.max(oracle::error(&got, &wanted(&work, &records, Numbers::Stored)));
    }
    let mut chunks: Vec<u32> = slots.iter().map(|slot| slot / 2).collect();
    chunks.sort_unstable();
    chunks.dedup();
    assert!(chunks.len() >= 2, "slots of {chunks:?} alone were used");
    worst
}

#[test]
fn both_halves_agree_with_the_oracle_over_odd_shapes() {
    let shapes = [
        (32, 96, 32, Scalar::Bf16),
        (96, 32, 32, Scalar::F16),
        (160, 224, 32, Scalar::F32),
        (64, 192, 64, Scalar::Bf16),
        (320, 64, 64, Scalar::F16),
        (672, 352, 32, Scalar::Bf16),
        (2624, 64, 64, Scalar::Bf16),
        (64, 1344, 64, Scalar::F32),
    ];
    for (index, (hidden, inner, group, scale)) in (0u32..).zip(shapes) {
        let shape = Shape { hidden, inner, group, scale };
        for access in [ChunkAccess::Array, ChunkAccess::OneByOne] {
            let (rows, choices) = (1 + index, [3, 2, 4, 1, 5, 2, 2, 1][index as usize]);
            let error = worst_error(shape, rows, choices.max(7u32.div_ceil(rows)), access);
            println!("{shape:?} {access:?}: {error:.1e}");
            assert!(error <= TOLERANCE, "{shape:?}, {rows} rows, {access:?}: off by {error:e}");
        }
    }
}

#[test]
fn both_halves_agree_with_the_reference_backend_in_every_form_and_profile() {
    let shape = Shape { hidden: 352, inner: 736, group: 32, scale: Scalar::Bf16 };
    let device = open(two_records(shape), ChunkAccess::Array, None);
    let reference =
        Reference::new(ss_reference::Options { threads: 1, f16_inputs: true, ..Default::default() }).unwrap();
    let records = records(shape);
    let (pool, reference_pool) =
        (pool(&device, shape, POOL_SLOTS, &records), pool(&reference, shape, POOL_SLOTS, &records));
    let (choices, slots) = (3, scattered(5 * 3));
    for half in Half::BOTH {
        let inputs = Random(21).floats(if half == Half::In { 5 } else { 5 * choices } * half.widths(shape).0);
        for form in [Form::Prompt, Form::Generated] {
            for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
                let work = Work { half, shape, choices, form, arithmetic, inputs: &inputs, slots: &slots };
                let wanted: Vec<f64> = run(&reference, &reference_pool, &work).into_iter().map(f64::from).collect();
                let error = oracle::error(&run(&device, &pool, &work), &wanted);
                println!("{half:?} {form:?} {arithmetic}: {error:.1e}");
                assert!(error <= TOLERANCE, "{half:?} {form:?} {arithmetic}: off by {error:e}");
            }
        }
    }
}

/// Where a row of the invariance test rides.
#[derive(Clone, Copy, Debug)]
struct Ride {
    /// Rows of the operation.
    rows: u32,
    /// Which of them is the row under test.
    position: u32,
    /// How far the records are moved to other slots.
    shift: u32,
    chunk_bytes: Option<u64>,
    access: ChunkAccess,
}

/// Widths that several lanes share, so that the order of sums matters.
const SHARED_ROW: Shape = Shape { hidden: 672, inner: 736, group: 32, scale: Scalar::Bf16 };
const CHOICES: u32 = 3;

/// Every ride on which a row must keep its bits: alone, among 2 to 8, at every position, in other slots and chunks.
fn rides() -> Vec<Ride> {
    let alone = Ride { rows: 1, position: 0, shift: 0, chunk_bytes: None, access: ChunkAccess::Array };
    let record = SHARED_ROW.layout().bytes;
    let mut rides = vec![alone];
    for rows in 2..=8 {
        rides.extend((0..rows).map(|position| Ride { rows, position, ..alone }));
    }
    rides.extend((1..POOL_SLOTS).map(|shift| Ride { rows: 5, position: 3, shift, ..alone }));
    for records in 1..POOL_SLOTS {
        for access in [ChunkAccess::Array, ChunkAccess::OneByOne] {
            let chunk_bytes = Some(u64::from(records) * record);
            rides.push(Ride { rows: 4, position: records % 4, shift: records, chunk_bytes, access });
        }
    }
    rides
}

/// What the row under test goes through on all its rides.
struct Journey {
    half: Half,
    form: Form,
    arithmetic: Arithmetic,
    mutation: Option<Mutation>,
    /// Devices already open, by size of chunks and access.
    devices: HashMap<(Option<u64>, ChunkAccess), WgpuBackend>,
}

impl Journey {
    fn new(half: Half, form: Form, arithmetic: Arithmetic, mutation: Option<Mutation>) -> Self {
        Journey { half, form, arithmetic, mutation, devices: HashMap::new() }
    }

    /// The bits of the row under test on one ride.
    fn bits(&mut self, ride: Ride) -> Vec<u32> {
        let Journey { half, form, arithmetic, mutation, .. } = *self;
        let device = self.devices.entry((ride.chunk_bytes, ride.access));
        let backend = device.or_insert_with(|| open(ride.chunk_bytes, ride.access, mutation));
        let moved = |slot: u32| (slot + ride.shift) % POOL_SLOTS;
        let records: Vec<_> = records(SHARED_ROW).into_iter().map(|(slot, bytes)| (moved(slot), bytes)).collect();
        let pool = pool(backend, SHARED_ROW, POOL_SLOTS, &records);
        let (width, outputs) = half.widths(SHARED_ROW);
        let width = if half == Half::In { width } else { width * CHOICES };

        let mut company = Random(u64::from(ride.rows) << 8 | u64::from(ride.position));
        let (mut inputs, mut slots) = (Vec::new(), Vec::new());
        for row in 0..ride.rows {
            if row == ride.position {
                inputs.extend(Random(1).floats(width));
                slots.extend([2, 0, 5].map(moved));
            } else {
                inputs.extend(company.floats(width));
                slots.extend((0..CHOICES).map(|_| company.word() % POOL_SLOTS));
            }
        }
        let work = Work { half, shape: SHARED_ROW, choices: CHOICES, form, arithmetic, inputs: &inputs, slots: &slots };
        let (got, per_row) = (run(backend, &pool, &work), (outputs * CHOICES) as usize);
        bits(&got[ride.position as usize * per_row..][..per_row])
    }

    /// The first ride on which the row has other bits than alone.
    fn first_difference(&mut self) -> Option<Ride> {
        let rides = rides();
        let alone = self.bits(rides[0]);
        assert!(alone.iter().all(|&bits| f32::from_bits(bits) != UNTOUCHED && oracle::is_finite(bits)));
        rides.into_iter().skip(1).find(|&ride| self.bits(ride) != alone)
    }
}

#[test]
fn a_row_has_the_same_bits_alone_among_others_and_in_any_slot() {
    for half in Half::BOTH {
        for (form, arithmetic) in [(Form::Generated, Arithmetic::Exact), (Form::Prompt, Arithmetic::Fast)] {
            let difference = Journey::new(half, form, arithmetic, None).first_difference();
            assert!(difference.is_none(), "{half:?} {form:?} {arithmetic}: other bits on {difference:?}");
        }
    }
}

#[test]
fn the_invariance_test_notices_a_sum_whose_order_follows_the_row() {
    for half in Half::BOTH {
        let mutation = match half {
            Half::In => ("var sums = vec4<f32>();", "var sums = vec4<f32>(1e-6 * f32(first_row));"),
            Half::Out => (
                "select(0.0, down_dot(at_hand, x), there)",
                "select(0.0, down_dot(at_hand, x) + 1e-6 * f32(first_row), there)",
            ),
        };
        let difference = Journey::new(half, Form::Generated, Arithmetic::Exact, Some(mutation)).first_difference();
        assert!(difference.is_some(), "{half:?}: an order of summation that follows the row went unnoticed");
    }
}

#[test]
fn the_invariance_test_notices_a_slot_read_from_the_wrong_chunk() {
    let mutation = ("slot / SLOTS_PER_CHUNK", "min(slot / SLOTS_PER_CHUNK, 1u)");
    for half in Half::BOTH {
        let mut journey = Journey::new(half, Form::Generated, Arithmetic::Exact, Some(mutation));
        let difference = journey.first_difference().expect("a wrong chunk went unnoticed");
        assert!(difference.chunk_bytes.is_some(), "{half:?}: {difference:?}");
    }
}

#[test]
fn twenty_runs_give_the_same_bits() {
    let shape = SHARED_ROW;
    let backend = open(two_records(shape), ChunkAccess::Array, None);
    let pool = pool(&backend, shape, POOL_SLOTS, &records(shape));
    let slots = scattered(8);
    for half in Half::BOTH {
        let inputs = Random(9).floats(8 * half.widths(shape).0);
        let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
        let work = Work { half, shape, choices: 1, form, arithmetic, inputs: &inputs, slots: &slots };
        let first = bits(&run(&backend, &pool, &work));
        for again in 1..20 {
            assert_eq!(bits(&run(&backend, &pool, &work)), first, "run {again} of {half:?}");
        }
    }
}

#[test]
fn a_pair_without_a_slot_is_left_alone_and_joins_later_with_the_same_bits() {
    let shape = SHARED_ROW;
    for access in [ChunkAccess::Array, ChunkAccess::OneByOne] {
        let backend = open(two_records(shape), access, None);
        let pool = pool(&backend, shape, POOL_SLOTS, &records(shape));
        for half in Half::BOTH {
            let (width, outputs) = half.widths(shape);
            let inputs = Random(3).floats(4 * width);
            let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
            let work = |slots| Work { half, shape, choices: 1, form, arithmetic, inputs: &inputs, slots };
            let all = run(&backend, &pool, &work(&[6, 0, 2, 5]));
            let some = run(&backend, &pool, &work(&[6, NONE, POOL_SLOTS, 5]));
            let (first, rest) = some.split_at(outputs as usize);
            let (missing, last) = rest.split_at(2 * outputs as usize);
            assert!(missing.iter().all(|&number| number == UNTOUCHED), "{half:?} {access:?}");
            assert_eq!(bits(first), bits(&all[..outputs as usize]), "{half:?} {access:?}");
            assert_eq!(bits(last), bits(&all[3 * outputs as usize..]), "{half:?} {access:?}");
        }
    }
}

#[test]
fn prompt_rows_of_the_fast_profile_are_rounded_to_f16_and_no_others() {
    let shape = Shape { hidden: 352, inner: 64, group: 32, scale: Scalar::Bf16 };
    let backend = open(two_records(shape), ChunkAccess::Array, None);
    let records = records(shape);
    let pool = pool(&backend, shape, POOL_SLOTS, &records);
    let slots = scattered(6);
    for half in Half::BOTH {
        let inputs = Random(5).floats(6 * half.widths(shape).0);
        let work = |form, arithmetic, inputs| Work { half, shape, choices: 1, form, arithmetic, inputs, slots: &slots };
        let both = work(Form::Prompt, Arithmetic::Fast, &inputs);
        let [of_rounded, plain] =
            [Numbers::RoundedToF16, Numbers::Stored].map(|numbers| wanted(&both, &records, numbers));
        for (form, arithmetic) in [
            (Form::Prompt, Arithmetic::Fast),
            (Form::Prompt, Arithmetic::Exact),
            (Form::Generated, Arithmetic::Fast),
            (Form::Generated, Arithmetic::Exact),
        ] {
            let got = run(&backend, &pool, &work(form, arithmetic, &inputs));
            let rounds = (form, arithmetic) == (Form::Prompt, Arithmetic::Fast);
            let (near, far) = if rounds { (&of_rounded, &plain) } else { (&plain, &of_rounded) };
            assert!(oracle::error(&got, near) <= TOLERANCE, "{half:?} {form:?} {arithmetic}");
            assert!(oracle::error(&got, far) > 10.0 * TOLERANCE, "{half:?} {form:?} {arithmetic}: the two are alike");
        }
    }
}
