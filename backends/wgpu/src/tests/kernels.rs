//! Owns: what can be known of a kernel without a model: the order and rounding of permuted inputs, and that every
//! kernel can be said in Metal's language.

use naga::back::msl;
use naga::valid::{Capabilities, ValidationFlags, Validator};
use ss_backend::{Arithmetic, Scope, Site, Stage};

use super::fixture::{Random, bits, contents, filled, open, shared};
use crate::ChunkAccess;
use crate::encoding::{Encoding, Launch};
use crate::ops::{self, experts};
use crate::registry::{Kernel, Key, constants, source};
use crate::selftest::{self, cases};

/// The bit that tells a number from its negative.
const SIGN: u32 = 1 << 31;

/// Runs `permute_inputs.wgsl` over `rows` rows of `inputs` numbers.
fn permuted(x: &[f32], rows: u32, inputs: u32, lanes: u32, rounded: bool) -> Vec<f32> {
    let backend = open(None, ChunkAccess::Array, None);
    let width = (inputs / 32).next_multiple_of(lanes) * 32;
    let (from, to) = (filled(&backend, x), filled(&backend, &vec![0.0f32; (rows * width) as usize]));
    let mut steps = Vec::new();
    let (shared, site) = (backend.shared(), Site { scope: Scope::Whole, stage: Stage::State });
    let mut enc = Encoding { shared, arithmetic: Arithmetic::Exact, site, op: "test", steps: &mut steps };
    let (x, out) = (enc.view(&from, "x", from.bytes() / 4).unwrap(), enc.view(&to, "out", to.bytes() / 4).unwrap());
    enc.launch(&Launch {
        kernel: &experts::PERMUTE_INPUTS,
        constants: &[("INPUTS", inputs), ("LANES", lanes), ("ROUNDED", u32::from(rounded)), ("THREADS", 64)],
        views: &[&x, &out],
        weights: &[],
        immediates: &[0],
        grid: [width.div_ceil(4 * 64), rows, 1],
    })
    .unwrap();
    backend.shared().run(&steps).unwrap();
    contents(&backend, &to)
}

#[test]
fn inputs_are_permuted_as_the_formula_says() {
    for (inputs, lanes) in [(32, 1), (160, 4), (672, 4), (96, 16), (2592, 16)] {
        let rows = 3;
        let x = Random(u64::from(inputs)).floats(rows * inputs);
        let got = permuted(&x, rows, inputs, lanes, false);
        let steps = (inputs / 32).div_ceil(lanes);
        let mut seen = 0;
        for r in 0..rows {
            for (step, i, lane) in (0..steps).flat_map(|s| (0..8).flat_map(move |i| (0..lanes).map(move |l| (s, i, l))))
            {
                let block = step * lanes + lane;
                if block * 32 >= inputs {
                    continue;
                }
                let quad = (((r * steps + step) * 8 + i) * lanes + lane) as usize * 4;
                let c = (r * inputs + block * 32 + 8 * (i % 4) + i / 4) as usize;
                assert_eq!(got[quad..quad + 4], [x[c], x[c + 2], x[c + 4], x[c + 6]], "{inputs} inputs, {lanes} lanes");
                seen += 4;
            }
        }
        assert_eq!(seen, rows * inputs);
    }
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
    let rounded = permuted(&x, 1, 1024, 1, true);
    let order = permuted(&(0..1024).map(|c| c as f32).collect::<Vec<_>>(), 1, 1024, 1, false);
    let wanted: Vec<f32> = order.iter().map(|&c| half::f16::from_f32(x[c as usize]).to_f32()).collect();
    for ((c, got), wanted) in order.iter().zip(bits(&rounded)).zip(bits(&wanted)) {
        assert_eq!(got, wanted, "of {:e}", x[*c as usize]);
    }
    let nan = permuted(&[f32::NAN; 32], 1, 32, 1, true);
    assert!(bits(&nan).iter().all(|bits| bits & !SIGN > f32::INFINITY.to_bits()), "{nan:?}");
}

/// Says a kernel in Metal's language.
fn metal(kernel: &Kernel, key: &Key) -> Result<String, Box<dyn std::error::Error>> {
    let module = naga::front::wgsl::parse_str(&source(kernel, key))?;
    let info = Validator::new(ValidationFlags::all(), Capabilities::all()).validate(&module)?;
    let constants = constants(kernel, key).into_iter().collect();
    let (module, info) = naga::back::pipeline_constants::process_overrides(&module, &info, None, &constants)?;
    // As wgpu does it on macOS 13: binding arrays are argument buffers from 3.0 on.
    let options = msl::Options { lang_version: (3, 0), fake_missing_bindings: true, ..msl::Options::default() };
    Ok(msl::write_string(&module, &info, &options, &msl::PipelineOptions::default())?.0)
}

/// Every kernel in every key that the cases ask for.
#[test]
fn every_kernel_lowers_to_metal() {
    let one_by_one = open(None, ChunkAccess::OneByOne, None);
    for (device, operations) in [(shared(), ""), (&one_by_one, "Experts")] {
        for case in cases().iter().filter(|case| case.operation().contains(operations)) {
            for &mode in case.modes() {
                case.run(device, mode, &selftest::whole(&**case, mode)).unwrap();
            }
        }
        for key in device.shared().registry.keys() {
            let kernel = ops::KERNELS.iter().copied().flatten().find(|kernel| kernel.name() == key.kernel);
            let kernel = kernel.unwrap_or_else(|| panic!("{} is not in the list of kernels", key.kernel));
            let text = metal(kernel, &key).unwrap_or_else(|error| panic!("{key:?}: {error}"));
            assert!(text.contains("kernel void main_"), "{text}");
        }
    }
}
