//! Owns: the promises of Metal's expert kernels for prompt rows of the fast profile: numbers rounded to F16, row invariance,
//! slots; and the proof that these tests see what is wrong with a kernel.

use ss_backend::{Arithmetic, Backend, Form, NONE, Scalar};

use super::device::OnCpu;
use crate::ChunkAccess;
use crate::tests::fixture::{Half, Mutation, Random, Shape, UNTOUCHED, Work, bits, contents, pool, record};
use crate::tests::oracle::{self, Numbers};

/// Largest error of a sum of F16 numbers in F32, relative to all of them.
const TOLERANCE: f64 = 8e-7;

const POOL_SLOTS: u32 = 5;
const CHOICES: u32 = 2;

/// Outputs in part of a tile and in more than one, inputs in one block and in several.
const SHAPES: [Shape; 3] = [
    Shape { hidden: 32, inner: 96, group: 32, scale: Scalar::F16 },
    Shape { hidden: 160, inner: 32, group: 32, scale: Scalar::F32 },
    Shape { hidden: 64, inner: 64, group: 64, scale: Scalar::Bf16 },
];

/// Slots of `rows` rows: one slot has most of them, more than a tile, and one pair in nine has none.
fn slots(rows: u32) -> Vec<u32> {
    (0..rows * CHOICES).map(|pair| if pair % 9 == 4 { NONE } else { (pair % 8).saturating_sub(3) }).collect()
}

struct Prompt {
    shape: Shape,
    half: Half,
    inputs: Vec<f32>,
    slots: Vec<u32>,
}

impl Prompt {
    fn new(shape: Shape, half: Half, rows: u32) -> Self {
        let width = half.widths(shape).0 * if half == Half::In { 1 } else { CHOICES };
        Prompt { shape, half, inputs: Random(u64::from(rows)).floats(rows * width), slots: slots(rows) }
    }

    /// The outputs of some of the rows.
    fn run(&self, device: &OnCpu, rows: std::ops::Range<usize>) -> Result<Vec<f32>, String> {
        let records: Vec<_> = (0..POOL_SLOTS).map(|slot| (slot, self.shape.record(u64::from(slot) + 1))).collect();
        let pool = pool(device, self.shape, POOL_SLOTS, &records);
        let width = self.inputs.len() / (self.slots.len() / CHOICES as usize);
        let of_row = CHOICES as usize;
        let work = Work {
            half: self.half,
            shape: self.shape,
            choices: CHOICES,
            form: Form::Prompt,
            arithmetic: Arithmetic::Fast,
            inputs: &self.inputs[rows.start * width..rows.end * width],
            slots: &self.slots[rows.start * of_row..rows.end * of_row],
        };
        let (recorder, out) = record(device, &pool, &work);
        device.submit(recorder.all()).map_err(|error| error.to_string())?;
        Ok(contents(device, &out))
    }

    /// What the formulas give; nothing for a pair without a slot.
    fn wanted(&self) -> Vec<Option<Vec<f64>>> {
        let width = self.half.widths(self.shape).0 as usize;
        let pair = |(pair, &slot): (usize, &u32)| {
            let row = if self.half == Half::In { pair / CHOICES as usize } else { pair };
            let x = &self.inputs[row * width..][..width];
            let record = || self.shape.record(u64::from(slot) + 1);
            (slot != NONE).then(|| oracle::expert(self.half, self.shape, &record(), x, Numbers::RoundedToF16))
        };
        self.slots.iter().enumerate().map(pair).collect()
    }

    /// Why the outputs are not those of the formulas.
    fn objection(&self, got: &[f32]) -> Option<String> {
        let outputs = self.half.widths(self.shape).1 as usize;
        let (mut have, mut want) = (Vec::new(), Vec::new());
        for (pair, (got, wanted)) in got.chunks_exact(outputs).zip(self.wanted()).enumerate() {
            match wanted {
                Some(wanted) => {
                    have.extend_from_slice(got);
                    want.extend(wanted);
                }
                None if got.iter().all(|&number| number == UNTOUCHED) => {}
                None => return Some(format!("pair {pair} has no slot and was written")),
            }
        }
        let error = oracle::error(&have, &want);
        (error > TOLERANCE).then(|| format!("off by {error:e}"))
    }
}

#[test]
fn metals_experts_round_prompt_rows_to_f16_and_agree_with_the_formulas() {
    for access in [ChunkAccess::Array, ChunkAccess::OneByOne] {
        for shape in SHAPES {
            let device = OnCpu::new(Some(2 * shape.layout().bytes), access, None);
            for half in Half::BOTH {
                let prompt = Prompt::new(shape, half, 67);
                let objection = prompt.objection(&prompt.run(&device, 0..67).unwrap());
                assert_eq!(objection, None, "{half:?} of {shape:?}");
            }
            assert!(device.ran() >= 2);
        }
    }
}

#[test]
fn a_prompt_row_of_metals_experts_does_not_depend_on_the_rows_beside_it() {
    let device = OnCpu::new(None, ChunkAccess::Array, None);
    for half in Half::BOTH {
        let prompt = Prompt::new(SHAPES[1], half, 67);
        let whole = prompt.run(&device, 0..67).unwrap();
        let width = whole.len() / 67;
        // Rows alone, in the middle of a tile, and at its end.
        for rows in [0..1, 5..12, 12..45, 45..66, 66..67] {
            let got = prompt.run(&device, rows.clone()).unwrap();
            assert_eq!(bits(&got), bits(&whole[rows.start * width..rows.end * width]), "{half:?}, rows {rows:?}");
        }
    }
}

/// What is said of changed text.
fn fault(mutation: Mutation) -> Option<String> {
    let device = OnCpu::new(None, ChunkAccess::Array, Some(mutation));
    let said = Half::BOTH.into_iter().find_map(|half| {
        let prompt = Prompt::new(SHAPES[1], half, 67);
        prompt.run(&device, 0..67).map_or_else(Some, |got| prompt.objection(&got))
    });
    assert!(device.changed() > 0, "{mutation:?} changes nothing");
    said
}

#[test]
fn faults_of_every_kind_in_metals_prompt_experts_are_noticed() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    let before = |text: &str| format!("{barrier}\n            {text}").leak() as &'static str;
    for (kind, from, to, sign) in [
        ("no barrier before a block", before("put_rows("), "put_rows(", "no barrier between"),
        ("no barrier behind a block", before("if (block + 1"), "if (block + 1", "rows: "),
        (
            "no barrier behind a strip",
            "SIDE);\n    }\n    simdgroup_barrier(mem_flags::mem_threadgroup);",
            "SIDE);\n    }",
            "strips: ",
        ),
        ("weights not transposed", "PITCH, ulong2(0), true", "PITCH, ulong2(0), false", "off by"),
        ("half of a block", "k < DEEP; k += 8", "k < DEEP; k += 16", "off by"),
        (
            "scale and bias swapped",
            "float4(unit.scale), float4(unit.bias)",
            "float4(unit.bias), float4(unit.scale)",
            "off by",
        ),
        (
            "rows of the other half",
            "simd % 2 * SIDE * PITCH, weights",
            "(1 - simd % 2) * SIDE * PITCH, weights",
            "off by",
        ),
        ("a row past the last is written", "r < 8 && from + i * 8 + r < run.end", "r < 8", ""),
        ("pairs without a slot are multiplied", "slot < task.slots && ", "", "AddressSanitizer"),
        ("a block too many", "if (block + 1 <", "if (block <", ""),
        ("weights that nobody rounds", "to[0] = half(x.x);", "to[0] = half(x.x * 1.0005f);", "off by"),
    ] {
        let why = fault((from, to)).unwrap_or_else(|| panic!("{kind} went unnoticed"));
        println!("{kind}: {}", why.lines().find(|line| !line.trim_matches('=').is_empty()).unwrap_or_default());
        assert!(why.contains(sign), "{kind}: {why}");
    }
}
