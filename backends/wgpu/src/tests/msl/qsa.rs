//! Owns: the promises of Metal's kernels of sparse attention: the checks that their WGSL twins pass, and the proof that these
//! see what is wrong with a kernel.

use super::device::OnCpu;
use crate::ChunkAccess;
use crate::selftest::rig::{MODES, Mode};
use crate::selftest::{self, Case, cases};
use crate::tests::fixture::Mutation;
use crate::tests::rules::twin;

/// Choices and attention; what projects and appends stays WGSL. A case of many thousand blocks would take minutes here.
fn of_attention() -> Vec<Box<dyn Case>> {
    let all = cases().into_iter().filter(|case| case.operation().contains("QsaSelect"));
    all.filter(|case| !case.shape().contains("65536 blocks")).collect()
}

/// Generated rows, the cache stored in F32 and in BF16.
const GENERATED: [Mode; 2] = [MODES[0], MODES[2]];

/// Prompt rows that matrix units multiply.
const PROMPT: Mode = MODES[3];

#[test]
fn metals_attention_agrees_with_the_reference_backend() {
    let (device, twin) = (OnCpu::new(None, ChunkAccess::Array, None), twin());
    for case in of_attention() {
        for mode in [GENERATED[0], GENERATED[1], PROMPT] {
            let before = device.ran();
            let error = selftest::parity(&*case, &device, &twin, mode);
            let error = error.unwrap_or_else(|failure| panic!("{} {mode}: {failure}", case.shape()));
            println!("{} {mode}: {error:.1e}", case.shape());
            assert!(device.ran() > before, "{}", case.shape());
        }
    }
}

/// The case with this in its name.
fn named(name: &str) -> Box<dyn Case> {
    let mut cases = of_attention();
    let at = cases.iter().position(|case| case.shape().contains(name)).unwrap_or_else(|| panic!("no case of {name}"));
    cases.swap_remove(at)
}

/// Rows of several splits, and heads that no threadgroup divides.
const IN_SPLITS: &str = "after 500 tokens";
/// Scores of which most are the same.
const TIED: &str = "7 of 300 blocks";
/// More blocks than threads.
const MANY: &str = "512 of 700 blocks";

#[test]
fn a_row_of_metals_attention_does_not_depend_on_the_rows_beside_it() {
    let device = OnCpu::new(None, ChunkAccess::Array, None);
    for (name, mode) in
        [(IN_SPLITS, GENERATED[1]), ("head_dim: 16", GENERATED[0]), (TIED, GENERATED[0]), (IN_SPLITS, PROMPT)]
    {
        let case = named(name);
        // All rows at most at once, one by one, and raggedly: the splits in between are the WGSL's to try.
        let splits = selftest::splits(&*case, mode);
        for split in [splits.first(), splits.get(3)].into_iter().flatten() {
            selftest::invariance_in(&*case, &device, mode, std::slice::from_ref(split))
                .unwrap_or_else(|failure| panic!("{name}: {failure}"));
        }
    }
    assert!(device.ran() > 0);
}

/// What a check says of changed text in one case.
fn fault(mutation: Mutation, name: &str, mode: Mode) -> Result<(), String> {
    let (device, twin) = (OnCpu::new(None, ChunkAccess::Array, Some(mutation)), twin());
    let checked = selftest::parity(&*named(name), &device, &twin, mode);
    assert!(device.changed() > 0, "{mutation:?} changes nothing");
    checked.map(drop).map_err(|failure| failure.to_string())
}

#[test]
fn faults_of_every_kind_in_metals_attention_are_noticed() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    let before = |text: &str| format!("{barrier}\n    {text}").leak() as &'static str;
    for (kind, case, from, to, sign) in [
        ("no barrier before bins are counted", MANY, before("for (uint j = self"), "for (uint j = self", "bins: "),
        ("no barrier before counts are written anew", MANY, before("if (lane == 31)"), "if (lane == 31)", "counts: "),
        (
            "bins that nobody set",
            MANY,
            "bin = self; bin < BINS;",
            "bin = self; bin < BINS / 2;",
            "read before it is written",
        ),
        ("sixteen lanes for thirty-two", MANY, "if (lane == 31)", "if (lane == 15)", "found: "),
        ("the highest of equal blocks", TIED, "seen < edge.left", "seen > 0 && seen <= edge.left", "in another order"),
        ("scores below zero count", MANY, "sum += positive(", "sum += (", "twin"),
        ("a stride too short", MANY, "query[load * WIDE]", "query[load]", "twin"),
        ("no barrier behind the logits", IN_SPLITS, before("weigh("), "weigh(", "weights: "),
        ("no barrier behind the tokens", IN_SPLITS, before("multiply("), "multiply(", "queries: "),
        ("no barrier behind the values", IN_SPLITS, before("if (splits == 1)"), "if (splits == 1)", "parts: "),
        (
            "a barrier that some threads leave out",
            IN_SPLITS,
            before("add_values("),
            "if (self < here) threadgroup_barrier(mem_flags::mem_threadgroup);\n    add_values(",
            "no barrier between",
        ),
        (
            "a head past the last",
            IN_SPLITS,
            "min(i / WHOLE_QUADS, work.heads - 1)",
            "i / WHOLE_QUADS",
            "AddressSanitizer",
        ),
        (
            "the last token is left out",
            IN_SPLITS,
            "key < here; key += VALUE_TEAMS",
            "key + 1 < here; key += VALUE_TEAMS",
            "twin",
        ),
        ("keys for values", IN_SPLITS, "#define AT_cache_v 4\n", "#define AT_cache_v 3\n", "twin"),
        ("a part weighed as another", IN_SPLITS, "fma(factor, own_weight, weight)", "weight + own_weight", "twin"),
        (
            "a ticket that stays",
            IN_SPLITS,
            "atomic_store_explicit(ticket, 0u, memory_order_relaxed);",
            "",
            "in another order",
        ),
        (
            "a sum over parts of other rows",
            IN_SPLITS,
            "* splits + split) * PART",
            "* splits + split + 1) * PART",
            "AddressSanitizer",
        ),
    ] {
        let why = fault((from, to), case, GENERATED[1]).expect_err(kind);
        println!("{kind}: {}", why.lines().find(|line| !line.trim_matches('=').is_empty()).unwrap_or_default());
        assert!(why.contains(sign), "{kind}: {why}");
    }
}

#[test]
fn faults_of_every_kind_in_metals_prompt_attention_are_noticed() {
    let barrier = "threadgroup_barrier(mem_flags::mem_threadgroup);";
    let before = |text: &str| format!("{barrier}\n        {text}").leak() as &'static str;
    for (kind, from, to, sign) in [
        ("no barrier before the weights", before("weigh("), "weigh(", "strip: "),
        ("no barrier behind the weights", before("if (any_turns"), "if (any_turns", "turns: "),
        (
            "no barrier behind the keys",
            "threadgroup_barrier(mem_flags::mem_threadgroup);\n            add_logits",
            "add_logits",
            "tile: ",
        ),
        ("sums that are not turned", "if (any_turns(turns))", "if (any_turns(turns) && first == 0)", "twin"),
        ("a turn of another head", "column == head % 8 ? turn", "column == (head + 1) % 8 ? turn", "twin"),
        ("keys not transposed", "PITCH, ulong2(0), true", "PITCH, ulong2(0), false", "twin"),
        ("tokens past the last weigh", "first + i < here ? logit", "first + i <= here ? logit", "twin"),
        ("a stride of numbers for one of tokens", "values + (k * PITCH", "values + (k * PART", ""),
        ("queries of a head too many", "h < work.heads && quad", "quad", "AddressSanitizer"),
        (
            "weights of half the lanes",
            "weight_sum = shared_sum(weight_sum);",
            "weight_sum += simd_shuffle_xor(weight_sum, ushort(1));",
            "twin",
        ),
    ] {
        let why = fault((from, to), IN_SPLITS, PROMPT).expect_err(kind);
        println!("{kind}: {}", why.lines().find(|line| !line.trim_matches('=').is_empty()).unwrap_or_default());
        assert!(why.contains(sign), "{kind}: {why}");
    }
}
