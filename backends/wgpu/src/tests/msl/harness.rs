//! Owns: the proof that the harness computes what Metal would, and that it sees what no GPU tells.

use super::program::{Argument, Program};
use crate::msl::Said;
use crate::tests::fixture::Random;

const REDUCE: &str = include_str!("../../../../../tests/msl/probes/reduce.metal");
const HISTOGRAM: &str = include_str!("../../../../../tests/msl/probes/histogram.metal");
const MATRICES: &str = include_str!("../../../../../tests/msl/probes/matrices.metal");

/// A probe with text replaced, its threads a macro as in kernels.
fn probe(text: &str, threads: u32, (from, to): (&str, &str)) -> Result<Program, String> {
    assert!(text.contains(from), "{from} is not in the probe");
    let text = format!("#define THREADS {threads}u\n{}", text.replacen(from, to, 1));
    Program::limited(&Said { text, entry: "probe", threads }, 2)
}

fn bytes<T: bytemuck::NoUninit>(numbers: &[T]) -> &[u8] {
    bytemuck::cast_slice(numbers)
}

fn numbers<T: bytemuck::Pod>(bytes: &[u8]) -> Vec<T> {
    bytemuck::pod_collect_to_vec(bytes)
}

/// Sums of three threadgroups of 130 numbers each.
fn reduced(fault: (&str, &str)) -> Result<(), String> {
    let x: Vec<f32> = (0..3 * 130).map(|i| (i % 17) as f32).collect();
    let sums = x.chunks(130).map(|x| x.iter().sum()).collect::<Vec<f32>>();
    let arguments = [Argument::read(bytes(&[130u32])), Argument::read(bytes(&x)), Argument::written(&[0; 12])];
    let answer = probe(REDUCE, 64, fault)?.run([3, 1, 1], &arguments)?;
    if numbers::<f32>(&answer[0]) == sums { Ok(()) } else { Err("other sums".to_owned()) }
}

/// Counts of the ids of two threadgroups.
fn counted(fault: (&str, &str)) -> Result<(), String> {
    let mut random = Random(4);
    let ids: Vec<u32> = (0..2 * 96).map(|_| random.word() % 40).collect();
    let counts: Vec<u32> = (0..40).map(|bin| ids.iter().filter(|&&id| id == bin).count() as u32).collect();
    let places: Vec<u32> = (0..2 * 96).map(|i| i % 32).collect();
    let (zeros, unset) = ([0; 40 * 4], [0xff; 2 * 96 * 4]);
    let arguments =
        [Argument::read(&[]), Argument::read(bytes(&ids)), Argument::written(&zeros), Argument::written(&unset)];
    let answer = probe(HISTOGRAM, 96, fault)?.run([2, 1, 1], &arguments)?;
    let same = numbers::<u32>(&answer[0]) == counts && numbers::<u32>(&answer[1]) == places;
    if same { Ok(()) } else { Err("other counts".to_owned()) }
}

/// A product of matrices of small whole numbers, which halves hold.
fn multiplied(fault: (&str, &str)) -> Result<(), String> {
    let whole = |i: usize| (i * 7 % 11) as f32 - 5.0;
    let halves = |count| (0..count).map(|i| half::f16::from_f32(whole(i))).collect::<Vec<_>>();
    let (a, b) = (halves(16 * 24), halves(8 * 24));
    let wanted = |i: usize| (0..24).map(|k| whole(i / 8 * 24 + k) * whole(i % 8 * 24 + k)).sum::<f32>();
    let wanted: Vec<f32> = (0..16 * 8).map(wanted).collect();
    let unset = [0xff; 16 * 8 * 4];
    let arguments =
        [Argument::read(&[]), Argument::read(bytes(&a)), Argument::read(bytes(&b)), Argument::written(&unset)];
    let answer = probe(MATRICES, 64, fault)?.run([1, 1, 1], &arguments)?;
    if numbers::<f32>(&answer[0]) == wanted { Ok(()) } else { Err("another product".to_owned()) }
}

#[test]
fn probes_compute_what_metal_would() {
    for (name, probe) in [("reduce", reduced as fn(_) -> _), ("histogram", counted), ("matrices", multiplied)] {
        probe(("probe", "probe")).unwrap_or_else(|why| panic!("{name}: {why}"));
    }
}

#[test]
fn faults_that_no_gpu_tells_are_told_by_the_harness() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    for (kind, probe, (from, to), sign) in [
        ("no barrier", reduced as fn(_) -> _, (barrier, ""), "read before it is written"),
        ("no barrier before counting", counted, (barrier, ""), "bins"),
        ("no barrier behind matrices", multiplied, (barrier, ""), "read before it is written"),
        (
            "a barrier of one SIMD-group",
            reduced,
            ("threadgroup_barrier(", "simdgroup_barrier("),
            "read before it is written",
        ),
        ("a barrier that orders nothing", counted, ("mem_flags::mem_threadgroup", "mem_flags::mem_none"), "no barrier"),
        (
            "a barrier that some leave out",
            reduced,
            (barrier, "if (simd == 0) threadgroup_barrier(mem_flags::mem_threadgroup);"),
            "a barrier that not all threads reach",
        ),
        (
            "a sum that some lanes leave out",
            reduced,
            ("    sum = simd_sum(sum);", "    if (lane < 31) sum = simd_sum(sum);"),
            "a SIMD-group function that not all lanes reach",
        ),
        (
            "threadgroup memory that nobody set",
            reduced,
            ("if (lane == 0) {", "if (lane == 0 && simd == 0) {"),
            "read before it is written",
        ),
        (
            "threadgroup memory past its end",
            counted,
            ("bins[ids[place]]", "bins[ids[place] + 1]"),
            "outside of the array",
        ),
        ("a loop without an end", reduced, ("i += THREADS", "i += 0"), "a kernel that does not end"),
        ("more threadgroup memory than there is", multiplied, ("tiles[2 * 64]", "tiles[8193]"), "more than a GPU has"),
        ("two threads write one element", reduced, ("if (lane == 0) {", "if (lane < 2) {"), "no barrier between"),
        ("a buffer past its end", reduced, ("i < task.each", "i <= task.each"), "AddressSanitizer"),
        ("an immediate that was not given", reduced, ("task.each;", "(&task.each)[1];"), "AddressSanitizer"),
        (
            "an order that shows",
            counted,
            ("simd_prefix_exclusive_sum(1u)", "atomic_fetch_add_explicit(&counts[0], 0u, memory_order_relaxed)"),
            "in another order",
        ),
        ("a lane past the last", multiplied, ("+ simd * 8 * 24 + k", "+ simd_shuffle(0u, 32)"), "a lane past the last"),
        (
            "an index that was never set",
            counted,
            (
                "const uint place = group.x * THREADS + self;",
                "uint unset[2];\n    unset[0] = self;\n    const uint place = unset[1];",
            ),
            "AddressSanitizer",
        ),
        (
            "a binding that is only read",
            reduced,
            ("device float *sums [[buffer(2)]]", "device float *sums [[buffer(1)]]"),
            "whose binding says otherwise",
        ),
    ] {
        let why = probe((from, to)).expect_err(kind);
        assert!(!why.contains(" generated."), "{kind} does not compile:\n{why}");
        assert!(why.contains(sign), "{kind}: {why}");
    }
}
