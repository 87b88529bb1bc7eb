//! Owns: the proof of the rules on logits and of the list of the largest, against straightforward F64 code.

use ss_backend::op::{Head, LogitRules, TOP, TOP_HEAD, TOP_NOT_FINITE, TOP_SEEN, Top};
use ss_backend::{Backend, Form, NONE};

use super::rig::{
    EXACT, MODES, Mode, Random, download, download_ids, fast, plain, upload, upload_bytes, upload_ids, zeros,
};
use crate::Reference;

const NO_RULES: LogitRules = LogitRules::none(u32::MAX);

/// What a row is listed as.
#[derive(Debug, PartialEq)]
struct Listed {
    flags: u32,
    sum: f32,
    pairs: Vec<(f32, u32)>,
}

/// Rows of logits and the rules on them.
struct Data {
    vocab: usize,
    logits: Vec<f32>,
    ids: Vec<u32>,
    rules: LogitRules,
    counts: Vec<u32>,
    bias: Vec<f32>,
    mask: Vec<u32>,
}

impl Data {
    fn new(vocab: usize, logits: &[f32]) -> Data {
        Data {
            vocab,
            logits: logits.to_vec(),
            ids: vec![NONE; logits.len() / vocab],
            rules: NO_RULES,
            counts: vec![0; vocab],
            bias: vec![0.0; vocab],
            mask: vec![0; vocab.div_ceil(32)],
        }
    }

    fn op(&self, on: &Reference, mode: Mode) -> Top {
        Top {
            rows: mode.rows(self.ids.len()),
            vocab: self.vocab as u32,
            logits: upload(on, &self.logits),
            ids: upload_ids(on, &self.ids),
            rules: upload_bytes(on, bytemuck::bytes_of(&self.rules)),
            counts: upload_ids(on, &self.counts),
            bias: upload(on, &self.bias),
            mask: upload_ids(on, &self.mask),
            adjusted: zeros(on, self.logits.len()),
            out: zeros(on, self.ids.len() * Top::WORDS as usize),
        }
    }

    /// Adjusted logits, and each row's list.
    fn run(&self, on: &Reference, mode: Mode) -> (Vec<f32>, Vec<Listed>) {
        let op = self.op(on, mode);
        mode.submit(on, |recorder| recorder.top(op.clone())).unwrap();
        let lists = download_ids(on, &op.out).chunks_exact(Top::WORDS as usize).map(read).collect();
        (download(on, &op.adjusted), lists)
    }

    /// The adjusted logits of a row.
    fn oracle(&self, mode: Mode, row: usize) -> Vec<f64> {
        let rules = &self.rules;
        let adjusted = |id: usize| {
            let mut logit = f64::from(self.logits[row * self.vocab + id]);
            let fed = match mode.form {
                Form::Generated => self.ids[..=row].iter().filter(|&&fed| fed as usize == id).count(),
                Form::Prompt => 0,
            };
            if rules.biased == 1 {
                logit += f64::from(self.bias[id]);
            }
            let times = (self.counts[id] & !TOP_SEEN) as usize + fed;
            let repetition = f64::from(rules.repetition);
            if rules.counted == 1 && (self.counts[id] & TOP_SEEN > 0 || fed > 0) {
                logit = if logit > 0.0 { logit / repetition } else { logit * repetition };
            }
            if rules.counted == 1 && times > 0 {
                logit -= f64::from(rules.frequency) * times as f64 + f64::from(rules.presence);
            }
            let allowed = rules.masked == 0 || self.mask[id / 32] >> (id % 32) & 1 == 1;
            if id < rules.vocabulary as usize && allowed { logit } else { f64::NEG_INFINITY }
        };
        (0..self.vocab).map(adjusted).collect()
    }
}

fn read(out: &[u32]) -> Listed {
    let (head, list) = out.split_at(TOP_HEAD as usize);
    let (listed, rest) = list.split_at(2 * head[0] as usize);
    assert!(head[3] == 0 && rest.chunks(2).all(|pair| pair == [f32::NEG_INFINITY.to_bits(), NONE]), "{out:?}");
    let pairs = listed.chunks(2).map(|pair| (f32::from_bits(pair[0]), pair[1])).collect();
    Listed { flags: head[1], sum: f32::from_bits(head[2]), pairs }
}

/// Logits of three rows under every rule; ids are fed again and again.
fn ruled(random: &mut Random, vocab: usize) -> Data {
    let mut data = Data::new(vocab, &random.vec(3 * vocab, 9.0));
    data.ids = vec![1, random.below(vocab) as u32, 1];
    data.counts = (0..vocab as u32).map(|id| if id % 3 == 0 { TOP_SEEN | (id % 4) } else { 0 }).collect();
    data.bias = random.vec(vocab, 2.0);
    data.mask.iter_mut().for_each(|word| *word = random.next() as u32 | 2);
    let vocabulary = vocab as u32 - 2;
    data.rules = LogitRules {
        vocabulary,
        masked: 1,
        biased: 1,
        counted: 1,
        presence: 0.5,
        frequency: -0.25,
        repetition: 1.25,
        repetition_inverse: 0.8,
    };
    data
}

#[test]
fn adjusted_logits_and_their_list_agree_with_the_oracle() {
    let mut random = Random(4);
    for vocab in [7, 300, 4099] {
        let data = ruled(&mut random, vocab);
        for (on, mode) in MODES.into_iter().flat_map(|mode| [(fast(), mode), (plain(), mode)]) {
            let (adjusted, lists) = data.run(&on, mode);
            for ((row, adjusted), list) in adjusted.chunks(vocab).enumerate().zip(lists) {
                let want = data.oracle(mode, row);
                for (id, (&have, &want)) in adjusted.iter().zip(&want).enumerate() {
                    let near = (f64::from(have) - want).abs() < 3e-6;
                    assert!(near || f64::from(have) == want, "{mode:?} [{row}, {id}]: {have} instead of {want}");
                }
                let mut pairs: Vec<(f32, u32)> = adjusted.iter().copied().zip(0..).collect();
                pairs.retain(|(value, _)| *value > f32::NEG_INFINITY);
                pairs.sort_by(|(a, _), (b, _)| b.total_cmp(a));
                pairs.truncate(TOP as usize);
                let sum = want.iter().map(|logit| logit.exp()).sum::<f64>().ln();
                assert!((f64::from(list.sum) - sum).abs() < 1e-5, "{mode:?} {row}: {} instead of {sum}", list.sum);
                assert_eq!((list.flags, list.pairs), (0, pairs), "{mode:?} {row}");
            }
        }
    }
}

#[test]
fn generated_rows_count_what_they_and_those_before_were_fed() {
    let mut data = Data::new(2, &[1.0, 1.0, 1.0, 1.0, 1.0, 1.0]);
    data.ids = vec![1, 0, 1];
    data.rules = LogitRules { counted: 1, presence: 0.5, frequency: 0.25, ..NO_RULES };
    assert_eq!(data.run(&fast(), EXACT).0, [1.0, 0.25, 0.25, 0.25, 0.25, 0.0]);
    let prompt = Mode { form: Form::Prompt, ..EXACT };
    assert_eq!(data.run(&fast(), prompt).0, [1.0; 6]);
}

#[test]
fn equal_logits_are_listed_by_ascending_id() {
    let (_, lists) = Data::new(1000, &[-0.0, 0.0].repeat(500)).run(&fast(), EXACT);
    let ids: Vec<u32> = lists[0].pairs.iter().map(|(_, id)| *id).collect();
    assert_eq!((lists[0].flags, ids), (0, (0..TOP).collect()));
}

#[test]
fn a_logit_that_is_not_finite_is_told_unless_it_is_padding() {
    let (inf, nan) = (f32::INFINITY, f32::NAN);
    let mut data = Data::new(3, &[nan, 1.0, 2.0, 1.0, inf, 0.0, -inf, 1.0, -inf, nan, nan, nan, 1.0, 1.0, 1.0]);
    data.ids = vec![NONE; 5];
    let (_, lists) = data.run(&fast(), EXACT);
    assert!(lists[..4].iter().all(|list| list.flags == TOP_NOT_FINITE) && lists[4].flags == 0, "{lists:?}");
    assert_eq!(lists[0].pairs, [(2.0, 2), (1.0, 1)]);
    assert_eq!((lists[1].sum, lists[1].pairs[0]), (inf, (inf, 1)));
    assert_eq!((lists[2].sum, &*lists[2].pairs), (1.0, &[(1.0, 1)][..]));
    assert_eq!((lists[3].sum, lists[3].pairs.len()), (-inf, 0));
    let mut padded = Data::new(3, &[1.0, 2.0, nan]);
    padded.rules.vocabulary = 2;
    assert_eq!(padded.run(&fast(), EXACT).1[0].flags, 0);
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let on = fast();
    let refused = |op: Top| EXACT.submit(&on, |recorder| recorder.top(op)).unwrap_err().to_string();
    let op = || Data::new(40, &[0.0; 80]).op(&on, EXACT);
    assert!(refused(Top { vocab: 0, ..op() }).contains("`vocab` is 0"));
    let many = Data::new(1, &[0.0; Head::MAX_ROWS as usize + 1]).op(&on, EXACT);
    assert!(refused(many).contains("`rows` is 9, at most 8 are allowed"));
    let small = on.alloc("small", 4).unwrap();
    assert!(refused(Top { mask: small.clone(), ..op() }).contains("`mask` (small) has 4 bytes, 8 are needed"));
    assert!(refused(Top { rules: small.clone(), ..op() }).contains("`rules` (small) has 4 bytes, 32 are needed"));
    assert!(refused(Top { adjusted: op().logits, logits: small, ..op() }).contains("`logits` (small) has 4 bytes"));
}
