//! Owns: which rows of logits are listed, and which are flagged instead.

use ss_backend::op::{LogitRules, TOP, TOP_HEAD, TOP_UNRANKED, Top};
use ss_backend::{Arithmetic, Backend, Form, Recorder, Rows};

use super::fixture::{Random, filled, shared};
use crate::selftest::rig::download;

/// How many ids are listed of one row of logits without rules, its flags, and those ids.
fn listed(logits: &[f32]) -> (u32, u32, Vec<u32>) {
    let (device, vocab) = (shared(), logits.len() as u32);
    let zeros = |words: u32| device.alloc("test", 4 * u64::from(words)).unwrap();
    let top = Top {
        rows: Rows { count: 1, form: Form::Generated },
        vocab,
        logits: filled(device, logits),
        ids: zeros(1),
        rules: filled(device, &[LogitRules::none(vocab)]),
        counts: zeros(vocab),
        bias: zeros(vocab),
        mask: zeros(vocab.div_ceil(u32::BITS)),
        adjusted: zeros(vocab),
        out: zeros(Top::WORDS),
    };
    let mut recorder = Recorder::new(Arithmetic::Exact);
    recorder.top(top.clone());
    device.submit(recorder.all()).unwrap();
    let out: Vec<u32> = download(device, &top.out).unwrap();
    let ids = out[TOP_HEAD as usize..].chunks_exact(2).map(|pair| pair[1]);
    (out[0], out[1], ids.take(out[0] as usize).collect())
}

#[test]
fn as_many_equal_logits_as_can_be_ranked_are_listed_and_more_are_flagged() {
    let (count, flags, ids) = listed(&[1.5; 1024]);
    assert_eq!((count, flags), (TOP, 0));
    assert_eq!(ids, (0..TOP).collect::<Vec<_>>());
    for vocab in [1025, 4099] {
        assert_eq!(listed(&vec![1.5; vocab]), (0, TOP_UNRANKED, vec![]), "{vocab}");
    }
}

#[test]
fn a_row_as_long_as_that_of_the_released_model_is_listed() {
    let mut random = Random(3);
    // The product of three is small for most, as logits are.
    let logits: Vec<f32> = (0..248_320).map(|_| 30.0 * random.signed() * random.signed() * random.signed()).collect();
    let mut wanted: Vec<u32> = (0..248_320).collect();
    wanted.sort_by(|&a, &b| logits[b as usize].total_cmp(&logits[a as usize]));
    wanted.truncate(TOP as usize);
    assert_eq!(listed(&logits), (TOP, 0, wanted));
}
