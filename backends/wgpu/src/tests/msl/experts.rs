//! Owns: the promises of Metal's expert kernels: parity with the reference backend on fresh data, row invariance (engine.md
//! I1 to I3, 3.7), slots and chunks; and the proof that these tests see what is wrong with a kernel.

use std::time::{SystemTime, UNIX_EPOCH};

use ss_backend::{Arithmetic, Form, Format, NONE};

use super::device::OnCpu;
use crate::ChunkAccess;
use crate::selftest::rig::{BF16, MODES, Mode, Q4, Q4_32, Q8, Q8_64, Random};
use crate::selftest::{self, Case, Failure, experts};
use crate::tests::fixture::{self, Half, Mutation, Shape, UNTOUCHED, Work, bits};
use crate::tests::oracle::is_finite;
use crate::tests::rules::twin;

/// Generated rows, which no profile rounds.
const GENERATED: Mode = MODES[0];

/// Hidden and inner widths, formats of gate, up and down, and of the shared expert's. Lanes of a team and rows at once come
/// whole and in part: 32, 16 and 8 lanes, tiles with less than they hold, rows that no tile divides.
const SHAPES: [([u32; 2], [Format; 3], [Format; 3]); 8] = [
    ([512, 64], [Q4; 3], [Q4; 3]),
    ([256, 192], [Q4, Q4, Q8_64], [Q8_64, Q8_64, Q4]),
    ([160, 96], [Q4_32, Q8, Q4_32], [Q8, Q4_32, Q8]),
    ([64, 352], [Q8; 3], [Q4_32, Q4_32, Q4_32]),
    ([32, 32], [Q4_32; 3], [Q4_32, Q8, Q4_32]),
    ([704, 32], [Q4, Q8_64, Q4_32], [Q4; 3]),
    ([64, 50], [Q4, Q4, BF16], [Q8_64, Q4, BF16]),
    ([96, 3], [Q4_32, Q4_32, BF16], [Q8, Q8, BF16]),
];

/// A number that no run has had before, printed so that a failure can be had again.
fn fresh() -> u64 {
    let named = std::env::var("SS_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = named.unwrap_or_else(|| SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |t| t.as_nanos() as u64));
    println!("SS_SEED={seed}");
    seed
}

/// The cases, their data from `seed`.
fn cases(seed: u64) -> Vec<Box<dyn Case>> {
    let mut random = Random(seed);
    SHAPES.map(|(widths, formats, shared)| experts(&mut random, widths, formats, shared)).into()
}

#[test]
fn metals_experts_agree_with_the_reference_backend_on_fresh_data() {
    let (device, twin) = (OnCpu::new(None, ChunkAccess::Array, None), twin());
    for (case, (_, formats, shared)) in cases(fresh()).iter().zip(SHAPES) {
        let before = device.ran();
        let error = selftest::parity(&**case, &device, &twin, GENERATED);
        println!("{}: {:.1e}", case.shape(), error.unwrap_or_else(|failure| panic!("{}: {failure}", case.shape())));
        // The second half stays WGSL where a weight of it is dense.
        let halves = if formats[2].is_affine() && shared[2].is_affine() { 2 } else { 1 };
        assert_eq!(device.ran() - before, halves, "{}", case.shape());
    }
}

#[test]
fn a_row_of_metals_experts_does_not_depend_on_the_rows_beside_it() {
    let device = OnCpu::new(None, ChunkAccess::Array, None);
    for case in cases(fresh()).iter() {
        selftest::invariance(&**case, &device, GENERATED)
            .unwrap_or_else(|failure| panic!("{}: {failure}", case.shape()));
    }
    assert!(device.ran() > 0);
}

const POOL_SLOTS: u32 = 7;
const CHOICES: u32 = 3;
const NARROW: Shape = Shape { hidden: 96, inner: 160, group: 32, scale: ss_backend::Scalar::Bf16 };

/// Outputs of one half without a shared expert, its experts in chunks of two slots.
fn in_slots(device: &OnCpu, half: Half, slots: &[u32]) -> Vec<f32> {
    let records: Vec<_> = (0..POOL_SLOTS).map(|slot| (slot, NARROW.record(u64::from(slot) + 1))).collect();
    let pool = fixture::pool(device, NARROW, POOL_SLOTS, &records);
    let rows = if half == Half::In { slots.len() as u32 / CHOICES } else { slots.len() as u32 };
    let inputs = fixture::Random(3).floats(rows * half.widths(NARROW).0);
    let (form, arithmetic) = (Form::Generated, Arithmetic::Exact);
    fixture::run(
        device,
        &pool,
        &Work { half, shape: NARROW, choices: CHOICES, form, arithmetic, inputs: &inputs, slots },
    )
}

#[test]
fn metals_experts_find_slots_in_every_chunk_and_leave_pairs_without_one_alone() {
    let chunk = Some(2 * NARROW.layout().bytes);
    let all = [6, 0, 2, 5, 3, 1, 4, 6, 0];
    let some = [6, NONE, 2, POOL_SLOTS, 3, 1, 4, NONE, 0];
    let devices = [ChunkAccess::Array, ChunkAccess::OneByOne].map(|access| OnCpu::new(chunk, access, None));
    let whole = OnCpu::new(None, ChunkAccess::OneByOne, None);
    for half in Half::BOTH {
        let wanted = in_slots(&whole, half, &all);
        assert!(wanted.iter().all(|&number| number != UNTOUCHED && is_finite(number.to_bits())));
        let width = half.widths(NARROW).1 as usize;
        for device in &devices {
            assert_eq!(bits(&in_slots(device, half, &all)), bits(&wanted), "{half:?}");
            let got = in_slots(device, half, &some);
            for (pair, (slot, wanted)) in some.iter().zip(wanted.chunks_exact(width)).enumerate() {
                let got = &got[pair * width..][..width];
                match *slot < POOL_SLOTS {
                    true => assert_eq!(bits(got), bits(wanted), "{half:?} {pair}"),
                    false => assert!(got.iter().all(|&number| number == UNTOUCHED), "{half:?} {pair}"),
                }
            }
        }
    }
    // One dispatch over an array of four chunks, or one a chunk.
    assert_eq!((devices[0].ran(), devices[1].ran(), whole.ran()), (4, 16, 2));
}

/// What a check says of the experts with changed text, in the first case that it fails.
fn fault(mutation: Mutation) -> Result<(), String> {
    let (device, twin) = (OnCpu::new(None, ChunkAccess::Array, Some(mutation)), twin());
    let mut checked = Ok(());
    for case in cases(5) {
        let told = |failure: Failure| failure.to_string();
        checked = selftest::parity(&*case, &device, &twin, GENERATED).map(drop).map_err(told);
        if checked.is_ok() && mutation.1.contains("group.y") {
            checked = selftest::invariance(&*case, &device, GENERATED).map_err(told);
        }
        if checked.is_err() {
            break;
        }
    }
    assert!(device.changed() > 0, "{mutation:?} changes nothing");
    checked
}

#[test]
fn faults_of_every_kind_in_metals_experts_are_noticed() {
    for (kind, from, to, sign) in [
        (
            "scale and bias swapped",
            "fma(scale, Codes<BITS>::times(codes[row * UNITS + unit], x), bias * x.sum)",
            "fma(bias, Codes<BITS>::times(codes[row * UNITS + unit], x), scale * x.sum)",
            "twin",
        ),
        ("a stride too long", "codes[row * UNITS + unit]", "codes[row * (UNITS + 1) + unit]", "AddressSanitizer"),
        (
            "rows past the last are read",
            "const uint row = min(first, uint(Weight::ROWS) - AT_ONCE);",
            "const uint row = first;",
            "AddressSanitizer",
        ),
        ("the last row is not reached", "uint(Gate::ROWS) - AT_ONCE", "uint(Gate::ROWS) - AT_ONCE - 1", "twin"),
        (
            "16 lanes for 32",
            "uint apart = LANES / 2; apart > 0",
            "uint apart = LANES / 2 > 8 ? 8 : LANES / 2; apart > 0",
            "twin",
        ),
        (
            "a SIMD-group function in a branch",
            "const float sum = folded<AT_ONCE, LANES>(sums, lane);",
            "const float sum = lane == 0 ? folded<AT_ONCE, LANES>(sums, lane) : 0.0f;",
            "not all lanes reach",
        ),
        ("an argument at another's slot", "#define AT_slots 2\n", "#define AT_slots 1\n", "twin"),
        ("a pair without a slot is multiplied", "slot >= task.slots || ", "", "AddressSanitizer"),
        ("a weight that is not aligned", "record + codes)", "words + 4 * codes + 1)", "misaligned"),
        (
            "a sum that depends on the row",
            "group.x,\n                           self);\n        return;",
            "group.x, self);\n        if (self == 0 && group.x == 0) out[group.y * Routed::ROWS] *= 1.0f + 1e-7f * group.y;\n\
            return;",
            "in operations of",
        ),
        ("codes of the wrong place", "0x4b00000fu, 0x4b0000f0u", "0x4b0000f0u, 0x4b00000fu", "twin"),
    ] {
        let why = fault((from, to)).expect_err(kind);
        println!("{kind}: {}", why.lines().find(|line| !line.trim_matches('=').is_empty()).unwrap_or_default());
        assert!(why.contains(sign), "{kind}: {why}");
    }
}
