//! Owns: cases of sparse attention; the tie rule; the rounding of caches.

use ss_backend::op::{self, QsaCache, QsaNorms, QsaShape};
use ss_backend::{Arithmetic, Form, Format, NONE, Scalar};

use super::cases::{Case, Outcome, pieces};
use super::rig::*;
use crate::Reference;

/// Projections.
pub struct Project {
    q: Weight,
    k: Weight,
    v: Weight,
    index: Weight,
    u: Vec<f32>,
}

impl Project {
    pub fn new(random: &mut Random, hidden: usize, formats: [Format; 3]) -> Self {
        Project {
            q: Weight::random(random, 48, hidden, formats[0]),
            k: Weight::random(random, 12, hidden, formats[1]),
            v: Weight::random(random, 12, hidden, formats[1]),
            index: Weight::random(random, 15, hidden, formats[2]),
            u: random.vec(37 * hidden, 1.0),
        }
    }
}

impl Case for Project {
    fn name(&self) -> String {
        format!("QsaProject {:?}", self.q.matrix)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["q", "kv"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let hidden = self.q.matrix.cols as usize;
        let [q, k, v, index] = [&self.q, &self.k, &self.v, &self.index].map(|weight| weight.linear(on));
        let mut outputs = vec![("q", vec![]), ("kv", vec![]), ("index", vec![])];
        pieces(split, |first, rows| {
            let outs = [48, 24, 15].map(|width| zeros(on, rows * width));
            let [q_out, kv_out, index_out] = outs.clone();
            let project = op::QsaProject {
                rows: mode.rows(rows),
                u: upload(on, &self.u[first * hidden..(first + rows) * hidden]),
                q: q.clone(),
                k: k.clone(),
                v: v.clone(),
                index: index.clone(),
                q_out,
                kv_out,
                index_out,
            };
            mode.submit(on, |r| r.qsa_project(project)).unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
        });
        Outcome { outputs, state: vec![] }
    }

    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let mut outputs = vec![("q", vec![]), ("kv", vec![]), ("index", vec![])];
        for u in wide(&self.u).chunks(self.q.matrix.cols as usize) {
            outputs[0].1.extend(self.q.multiply(mode, u));
            outputs[1].1.extend(self.k.multiply(mode, u));
            outputs[1].1.extend(self.v.multiply(mode, u));
            outputs[2].1.extend(self.index.times(u));
        }
        Outcome { outputs, state: vec![] }
    }
}

/// Append, select and attend, one after the other.
pub struct Attention {
    shape: QsaShape,
    /// Of q, k, index q, index k.
    norms: [Vec<f32>; 4],
    q: Vec<f32>,
    kv: Vec<f32>,
    index: Vec<f32>,
    /// `[rows, rotary / 2, 2]`.
    rope: Vec<f32>,
}

impl Attention {
    pub fn new(random: &mut Random, shape: [u32; 8]) -> Self {
        let [heads, kv_heads, head_dim, rotary, index_heads, index_dim, block, topk] = shape;
        let shape = QsaShape { heads, kv_heads, head_dim, rotary, index_heads, index_dim, block, topk, eps: 1e-6 };
        let angle = |i: u32| (f64::from(i / (rotary / 2)) * 10f64.powf(-f64::from(i % (rotary / 2)))) as f32;
        Attention {
            shape,
            norms: [head_dim, head_dim, index_dim, index_dim].map(|dim| random.norm(dim as usize)),
            q: random.vec(37 * (2 * heads * head_dim) as usize, 2.0),
            kv: random.vec(37 * (2 * kv_heads * head_dim) as usize, 2.0),
            index: random.vec(37 * ((index_heads + 1) * index_dim) as usize, 2.0),
            rope: (0..37 * rotary / 2).flat_map(|i| [angle(i).cos(), angle(i).sin()]).collect(),
        }
    }

    fn cache(&self, on: &Reference, scalar: Scalar) -> QsaCache {
        let shape = &self.shape;
        let make = |numbers: u32| zeros(on, numbers as usize * scalar.bytes() as usize / 4 + 1);
        let rows = 37 * shape.kv_heads * shape.head_dim;
        let (raw, pooled) = (37 * shape.index_dim, 37 / shape.block * shape.index_dim);
        QsaCache { scalar, k: make(rows), v: make(rows), raw: make(raw), pooled: make(pooled) }
    }

    /// Angles at the first token of each block that rows `first..first + rows` complete.
    fn block_rope(&self, first: usize, rows: usize) -> Vec<f32> {
        let (block, rotary) = (self.shape.block as usize, self.shape.rotary as usize);
        let blocks = first / block..(first + rows) / block;
        blocks.flat_map(|j| &self.rope[j * block * rotary..j * block * rotary + rotary]).copied().collect()
    }

    fn operations(&self, on: &Reference, mode: Mode, cache: &QsaCache, (first, rows): (usize, usize)) -> Operations {
        let shape = self.shape;
        let of = |all: &[f32], width: u32| {
            let width = width as usize;
            upload(on, &all[first * width..(first + rows) * width])
        };
        let [q, k, index_q, index_k] = self.norms.each_ref().map(|norm| upload(on, norm));
        let gate = of(&self.q, 2 * shape.heads * shape.head_dim);
        let out = |width: u32| zeros(on, rows * width as usize);
        let append = op::QsaAppend {
            rows: mode.rows(rows),
            first: first as u32,
            shape,
            norms: QsaNorms { q, k, index_q, index_k },
            q: gate.clone(),
            kv: of(&self.kv, 2 * shape.kv_heads * shape.head_dim),
            index: of(&self.index, (shape.index_heads + 1) * shape.index_dim),
            rope: of(&self.rope, shape.rotary),
            block_rope: upload(on, &self.block_rope(first, rows)),
            cache: cache.clone(),
            q_out: out(shape.heads * shape.head_dim),
            index_q_out: out(shape.index_heads * shape.index_dim),
        };
        // Two slices, the second one shorter or empty.
        let (half, blocks) = (rows.div_ceil(2), out(shape.topk));
        let slice = |slice: usize, slice_rows: usize| op::QsaSelect {
            rows: mode.rows(rows),
            first: first as u32,
            slice: slice as u32,
            slice_rows: slice_rows as u32,
            shape,
            index_q: append.index_q_out.clone(),
            cache: cache.clone(),
            scores: zeros(on, slice_rows * ((first + rows) / shape.block as usize)),
            blocks: blocks.clone(),
        };
        let attend = op::QsaAttend {
            rows: mode.rows(rows),
            first: first as u32,
            shape,
            q: append.q_out.clone(),
            gate,
            cache: cache.clone(),
            blocks: blocks.clone(),
            out: out(shape.heads * shape.head_dim),
        };
        Operations { select: [slice(0, half), slice(half, rows - half)], append, attend }
    }
}

struct Operations {
    append: op::QsaAppend,
    select: [op::QsaSelect; 2],
    attend: op::QsaAttend,
}

/// Numbers of a cache buffer.
fn cells(on: &Reference, cache: &QsaCache, buffer: &ss_backend::Buffer, numbers: u32) -> Vec<f32> {
    let words = download(on, buffer);
    match cache.scalar {
        Scalar::F32 => words[..numbers as usize].to_vec(),
        _ => {
            let cells: &[u16] = bytemuck::cast_slice(&words);
            cells[..numbers as usize].iter().map(|&bits| half::bf16::from_bits(bits).to_f32()).collect()
        }
    }
}

fn cache_numbers(on: &Reference, cache: &QsaCache, shape: &QsaShape) -> Vec<f32> {
    let (row, raw) = (shape.kv_heads * shape.head_dim, shape.index_dim);
    let buffers =
        [(&cache.k, 37 * row), (&cache.v, 37 * row), (&cache.raw, 37 * raw), (&cache.pooled, 37 / shape.block * raw)];
    buffers.into_iter().flat_map(|(buffer, numbers)| cells(on, cache, buffer, numbers)).collect()
}

impl Case for Attention {
    fn name(&self) -> String {
        format!("QsaAppend, QsaSelect, QsaAttend {:?}", self.shape)
    }

    fn rows(&self) -> usize {
        37
    }

    fn rounded(&self) -> &[&str] {
        &["out", "blocks"]
    }

    fn run(&self, on: &Reference, mode: Mode, split: &[usize]) -> Outcome<f32> {
        let cache = self.cache(on, mode.arithmetic.cache_scalar());
        let mut outputs = vec![("q", vec![]), ("index_q", vec![]), ("out", vec![]), ("blocks", vec![])];
        pieces(split, |first, rows| {
            let Operations { append, select: [left, right], attend } = self.operations(on, mode, &cache, (first, rows));
            let outs = [append.q_out.clone(), append.index_q_out.clone(), attend.out.clone()];
            let blocks = attend.blocks.clone();
            mode.submit(on, |r| {
                r.qsa_append(append);
                r.qsa_select(left);
                r.qsa_select(right);
                r.qsa_attend(attend);
            })
            .unwrap();
            outputs.iter_mut().zip(&outs).for_each(|((_, all), out)| all.extend(download(on, out)));
            outputs[3].1.extend(download_ids(on, &blocks).into_iter().map(|id| id as i32 as f32));
        });
        Outcome { outputs, state: cache_numbers(on, &cache, &self.shape) }
    }

    /// In the fast profile the oracle rounds what it stores; where F64 and F32 round to different neighbours the
    /// tolerance of the fast tests has room.
    fn oracle(&self, mode: Mode) -> Outcome<f64> {
        let shape = &self.shape;
        let (heads, kv, hd) = (shape.heads as usize, shape.kv_heads as usize, shape.head_dim as usize);
        let (ih, id, block) = (shape.index_heads as usize, shape.index_dim as usize, shape.block as usize);
        let half = shape.rotary as usize / 2;
        let store = |x: f64| match mode.arithmetic {
            Arithmetic::Exact => x,
            Arithmetic::Fast => half::bf16::from_f32(x as f32).to_f64(),
        };
        let turn = |x: &[f64], norm: &[f32], t: usize| {
            let mut x = rms(x, norm, 1e-6);
            for i in 0..half {
                let (cos, sin) =
                    (f64::from(self.rope[(t * half + i) * 2]), f64::from(self.rope[(t * half + i) * 2 + 1]));
                (x[i], x[i + half]) = (x[i] * cos - x[i + half] * sin, x[i + half] * cos + x[i] * sin);
            }
            x
        };
        let (mut k, mut v, mut raw, mut pooled) = (vec![], vec![], vec![], Vec::<f64>::new());
        let mut outputs = vec![("q", vec![]), ("index_q", vec![]), ("out", vec![]), ("blocks", vec![])];
        for t in 0..37 {
            let qg = wide(&self.q[t * 2 * heads * hd..(t + 1) * 2 * heads * hd]);
            let q: Vec<f64> = qg.chunks(2 * hd).flat_map(|q| turn(&q[..hd], &self.norms[0], t)).collect();
            let kv_row = wide(&self.kv[t * 2 * kv * hd..(t + 1) * 2 * kv * hd]);
            k.extend(kv_row[..kv * hd].chunks(hd).flat_map(|k| turn(k, &self.norms[1], t)).map(store));
            v.extend(kv_row[kv * hd..].iter().copied().map(store));
            let index = wide(&self.index[t * (ih + 1) * id..(t + 1) * (ih + 1) * id]);
            let iq: Vec<f64> = index[..ih * id].chunks(id).flat_map(|q| turn(q, &self.norms[2], t)).collect();
            raw.extend(index[ih * id..].iter().copied().map(store));
            let complete = (t + 1) / block;
            if (t + 1) % block == 0 {
                let rows = &raw[(t + 1 - block) * id..];
                let mean: Vec<f64> =
                    (0..id).map(|i| (0..block).map(|r| rows[r * id + i]).sum::<f64>() / block as f64).collect();
                pooled.extend(turn(&mean, &self.norms[3], t + 1 - block).into_iter().map(store));
            }
            let score = |j: usize| -> f64 {
                let key = &pooled[j * id..(j + 1) * id];
                iq.chunks(id).map(|q| q.iter().zip(key).map(|(q, k)| q * k).sum::<f64>().max(0.0)).sum()
            };
            let mut order: Vec<(f64, usize)> = (0..complete).map(|j| (score(j), j)).collect();
            order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            let mut kept: Vec<usize> = order.iter().take(shape.topk as usize).map(|(_, j)| *j).collect();
            kept.sort_unstable();
            let tokens: Vec<usize> =
                kept.iter().flat_map(|j| j * block..(j + 1) * block).chain(complete * block..t + 1).collect();
            for h in 0..heads {
                let g = h / (heads / kv);
                let at = |x: &[f64], token: usize, i: usize| x[(token * kv + g) * hd + i];
                let logit = |&token: &usize| {
                    (0..hd).map(|i| q[h * hd + i] * at(&k, token, i)).sum::<f64>() / (hd as f64).sqrt()
                };
                let logits: Vec<f64> = tokens.iter().map(logit).collect();
                let total: f64 = logits.iter().map(|l| l.exp()).sum();
                for i in 0..hd {
                    let sum: f64 = tokens.iter().zip(&logits).map(|(&token, l)| l.exp() * at(&v, token, i)).sum();
                    outputs[2].1.push(sum / total * sigmoid(qg[h * 2 * hd + hd + i]));
                }
            }
            outputs[0].1.extend(q);
            outputs[1].1.extend(iq);
            let padded = kept.iter().map(|&j| j as f64).chain(std::iter::repeat(-1.0));
            outputs[3].1.extend(padded.take(shape.topk as usize));
        }
        Outcome { outputs, state: [k, v, raw, pooled].concat() }
    }
}

#[test]
fn fast_caches_hold_the_nearest_bf16_of_what_exact_caches_hold() {
    let case = Attention::new(&mut Random(9), [6, 2, 64, 16, 4, 32, 4, 3]);
    let on = fast();
    let fast_mode = Mode { arithmetic: Arithmetic::Fast, form: Form::Prompt };
    let [exact, rounded] = [EXACT, fast_mode].map(|mode| case.run(&on, mode, &[37]).state);
    let pooled = exact.len() - 9 * 32;
    let nearest: Vec<f32> = exact.iter().map(|&x| half::bf16::from_f32(x).to_f32()).collect();
    assert_bits("k, v, raw", &rounded[..pooled], &nearest[..pooled]);
    assert!(exact.iter().zip(&nearest).any(|(a, b)| a != b), "something was rounded");
    // Pooled rows are made from the stored raw rows, so they are not merely rounded.
    assert!(rounded[pooled..].iter().zip(&nearest[pooled..]).any(|(a, b)| a != b));
    assert!(rounded[pooled..].iter().all(|&x| half::bf16::from_f32(x).to_f32() == x));
}

/// Selects among blocks with the given scores: one indexer head of width 1 that sees one token a block.
fn selected(on: &Reference, scores: &[f32], topk: u32) -> Vec<u32> {
    let count = scores.len() as u32;
    let shape = QsaShape {
        heads: 1,
        kv_heads: 1,
        head_dim: 2,
        rotary: 0,
        index_heads: 1,
        index_dim: 1,
        block: 1,
        topk,
        eps: 1e-6,
    };
    let nothing = zeros(on, 1);
    let cache = QsaCache {
        scalar: Scalar::F32,
        k: nothing.clone(),
        v: nothing.clone(),
        raw: nothing,
        pooled: upload(on, scores),
    };
    let blocks = zeros(on, topk as usize);
    let select = op::QsaSelect {
        rows: EXACT.rows(1),
        first: count - 1,
        slice: 0,
        slice_rows: 1,
        shape,
        index_q: upload(on, &[1.0]),
        cache,
        scores: zeros(on, scores.len()),
        blocks: blocks.clone(),
    };
    EXACT.submit(on, |r| r.qsa_select(select)).unwrap();
    download_ids(on, &blocks)
}

#[test]
fn tied_blocks_are_kept_from_the_lowest() {
    let scores = [0.0, 3.0, 0.0, 0.0, 3.0, 1.0, 0.0, 2.0, 0.0, 0.0, 2.0, 0.0];
    let signed = scores.map(|x| if x == 0.0 { -4.0 } else { x });
    for on in [fast(), plain(), threaded()] {
        for scores in [scores, signed] {
            assert_eq!(selected(&on, &scores, 6), [0, 1, 4, 5, 7, 10]);
            assert_eq!(selected(&on, &scores, 8), [0, 1, 2, 3, 4, 5, 7, 10]);
            assert_eq!(selected(&on, &scores, 14), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, NONE, NONE]);
        }
    }
}

#[test]
fn scores_that_are_not_numbers_are_no_panic() {
    let mut scores = [0.5; 12];
    scores[3] = f32::NAN;
    scores[7] = f32::INFINITY;
    let blocks = selected(&fast(), &scores, 4);
    assert!(blocks.is_sorted_by(|a, b| a < b) && blocks.iter().all(|&block| block < 12));
}

#[test]
fn attention_refuses_blocks_that_are_no_choice() {
    let case = Attention::new(&mut Random(3), [2, 2, 16, 16, 1, 16, 4, 2]);
    let on = fast();
    let cache = case.cache(&on, Scalar::F32);
    for (blocks, fine) in [([0, 1], true), ([1, 0], false), ([0, 0], false), ([0, NONE], false), ([0, 3], false)] {
        let mut attend = case.operations(&on, EXACT, &cache, (8, 1)).attend;
        attend.blocks = upload_ids(&on, &blocks);
        assert_eq!(EXACT.submit(&on, |r| r.qsa_attend(attend)).is_ok(), fine, "{blocks:?}");
    }
}
