//! Owns: what can be known of a kernel without a model: how inputs are rounded, that loops end, and that kernels with matrix
//! units can be said in Vulkan's language.

use std::collections::HashSet;

use ss_backend::{Arithmetic, Form, Rows, Scope, Site, Stage};

use super::fixture::{Random, bits, contents, filled, open, shared};
use crate::ChunkAccess;
use crate::encoding::Encoding;
use crate::ops;
use crate::ops::linear::{Strided, multiply};
use crate::registry::{Inputs, Kernel, Key, Side, Units, constants, source};
use crate::selftest::rig::Weight;
use crate::selftest::{self, cases};
use crate::tuning::LARGE_TILE;
use crate::vulkan;

/// The bit that tells a number from its negative.
const SIGN: u32 = 1 << 31;

/// Numbers as prompt rows of one input that a product rounds to F16 and multiplies with 1.
fn rounded(x: &[f32]) -> Vec<f32> {
    let backend = open(None, ChunkAccess::Array, None);
    let rows = x.len() as u32;
    let (from, to) = (filled(&backend, x), filled(&backend, &vec![0.0f32; x.len()]));
    let one = Weight::of(1, 1, &[1.0]).linear(&backend).unwrap();
    let mut steps = Vec::new();
    let (shared, site) = (backend.shared(), Site { scope: Scope::Whole, stage: Stage::State });
    let mut enc = Encoding { shared, arithmetic: Arithmetic::Fast, site, op: "test", steps: &mut steps, wanted: None };
    let rows = Rows { count: rows, form: Form::Prompt };
    let (x, out) = (enc.view(&from, "x", x.len() as u64).unwrap(), enc.view(&to, "out", x.len() as u64).unwrap());
    let one = enc.weight(&one, "one", 1, 1).unwrap().multiplied(enc.inputs(rows));
    multiply(&mut enc, rows, &Strided::rows(&x, 1), &one, &Strided::rows(&out, 1)).unwrap();
    backend.shared().run(&steps).unwrap();
    contents(&backend, &to)
}

#[test]
fn rounding_to_f16_has_the_bits_of_nearest_even() {
    let step = 2f32.powi(-24);
    let mut x = vec![
        0.0,
        -0.0,
        1.0,
        -1.0,
        65504.0,
        65519.996,
        65520.0,
        -65520.0,
        1e30,
        f32::MAX,
        f32::INFINITY,
        f32::NEG_INFINITY,
        // Ties: to even, down and up.
        1.0 + 2f32.powi(-11),
        1.0 + 3.0 * 2f32.powi(-11),
        2048.5,
        2049.5,
        4095.9998,
        // Subnormal halves, their ties, and the border to normal ones.
        step,
        0.5 * step,
        1.5 * step,
        2.5 * step,
        0.49999 * step,
        -0.5 * step,
        -1.5 * step,
        1023.5 * step,
        1023.4999 * step,
        2f32.powi(-14),
        2f32.powi(-14) * (1.0 - 2f32.powi(-12)),
        1e-30,
    ];
    let mut random = Random(11);
    while x.len() < 1024 {
        let scale = 2f32.powi((random.word() % 44) as i32 - 27);
        x.push(random.signed() * scale);
    }
    let got = rounded(&x);
    for (x, got) in x.iter().zip(got) {
        // A sum that begins with zero has no negative zero.
        let wanted = half::f16::from_f32(*x).to_f32() + 0.0;
        assert_eq!(got.to_bits(), wanted.to_bits(), "of {x:e}");
    }
    let nan = rounded(&[f32::NAN; 2]);
    assert!(bits(&nan).iter().all(|bits| bits & !SIGN > f32::INFINITY.to_bits()), "{nan:?}");
}

/// The text of every file that kernels are made of.
fn sources() -> Vec<(String, String)> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../wgsl");
    let files = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path());
    files.map(|path| (path.display().to_string(), std::fs::read_to_string(path).unwrap())).collect()
}

/// What the modules' SAFETY comment rests on: a loop that wgpu does not bound has a bound of its own and counts towards it.
#[test]
fn every_loop_counts_towards_a_bound() {
    let steps = ["++", " += ", " /= ", " *= "];
    let mut loops = 0;
    for (file, text) in sources() {
        for line in text.lines().map(str::trim_start) {
            assert!(!line.starts_with("loop"), "{file}: {line}");
            if let Some(condition) = line.strip_prefix("while ") {
                // Two loops walk runs of equal slots; each step ends behind where it began.
                assert!(condition.starts_with("place < ") || condition.starts_with("end < "), "{file}: {line}");
            }
            let Some(head) = line.strip_prefix("for (var ") else { continue };
            let [start, bound, step] = head.splitn(3, "; ").collect::<Vec<_>>()[..] else { panic!("{file}: {line}") };
            let (name, _) = start.split_once(" = ").unwrap();
            let bounded = bound.starts_with(name) && (bound.contains(" < ") || bound.contains(" > "));
            let counted = steps.iter().any(|sign| step.starts_with(&format!("{name}{sign}")));
            assert!(bounded && counted, "{file}: {line}");
            loops += 1;
        }
    }
    assert!(loops > 100, "{loops} loops were found");
}

/// Threads of a subgroup on the devices that have matrix units.
const SUBGROUP: u32 = 32;

/// A key in the tiles of a GPU.
pub(super) fn large(mut key: Key) -> Key {
    key.weights.iter_mut().for_each(|weight| weight.tile = LARGE_TILE);
    key
}

/// What a device with matrix units has in its place; none where it has the same.
pub(super) fn with_units(key: Key, side: Side) -> Option<Key> {
    let mut units = large(key);
    if units.kernel == "qsa_attend_prompt" {
        units.kernel = match side {
            Side::Eight => "qsa_attend_units_8",
            Side::Sixteen => "qsa_attend_units_16",
        };
        units.constants.retain(|(name, _)| !["THREADS", "VALUE_TEAMS"].contains(name));
        units.constants.push(("SUBGROUP", SUBGROUP));
        return Some(units);
    }
    let matrices = Inputs::Units(Units { side, subgroup: SUBGROUP });
    let mut rounded = units.weights.iter_mut().filter(|weight| weight.inputs == Inputs::F16).peekable();
    rounded.peek()?;
    rounded.for_each(|weight| {
        weight.inputs = matrices;
        weight.tile = weight.tile.with_units(weight.place.is_some(), weight.matrix.rows);
    });
    Some(units)
}

/// The kernel that a key names.
pub(super) fn kernel_of(key: &Key) -> &'static Kernel {
    let kernel = ops::KERNELS.iter().copied().flatten().find(|kernel| kernel.name() == key.kernel);
    kernel.unwrap_or_else(|| panic!("{} is not in the list of kernels", key.kernel))
}

/// Every key that the cases ask for, chunks in an array and one by one.
pub(super) fn keys() -> HashSet<Key> {
    let one_by_one = open(None, ChunkAccess::OneByOne, None);
    let mut keys = HashSet::new();
    for (device, operations) in [(shared(), ""), (&one_by_one, "Experts")] {
        for case in cases().iter().filter(|case| case.operation().contains(operations)) {
            for &mode in case.modes() {
                case.run(device, mode, &selftest::whole(&**case, mode)).unwrap();
            }
        }
        keys.extend(device.shared().registry.keys());
    }
    keys
}

/// An error with all that caused it.
pub(super) fn chain(error: &dyn std::error::Error) -> String {
    std::iter::successors(Some(error), |error| error.source()).map(|error| format!("{error}; ")).collect()
}

/// Metal has none of the larger matrices of other devices, which are said in Vulkan's language.
#[test]
fn every_kernel_with_large_matrices_lowers_to_vulkan() {
    let (mut named, mut matrices) = (HashSet::new(), 0);
    for key in keys().into_iter().filter_map(|key| with_units(key, Side::Sixteen)) {
        let kernel = kernel_of(&key);
        let words = vulkan::lowered(&source(kernel, &key), &key, constants(kernel, &key));
        let (accesses, said) = vulkan::tests::said(&words.unwrap_or_else(|error| panic!("{key:?}: {error}")));
        assert!(accesses > 20 && said == accesses, "{key:?}: {said} of {accesses}");
        named.insert(key.kernel);
        matrices += 1;
    }
    assert!(named.contains("qsa_attend_units_16") && matrices > 10, "{matrices}: {named:?}");
}
