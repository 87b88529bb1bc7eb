//! Owns: cases of Gated DeltaNet and its replay.

use ss_backend::op::{self, Carry, Gate, GdnInputs, GdnShape, GdnWeights};
use ss_backend::{Backend, Buffer, Format, Result};

use super::rig::{
    BF16, F16, F32, Mode, Q4, Q4_32, Q8, Random, UNROUNDED_MODES, Weight, download, in_place, pieces, rows_of, upload,
    zeros,
};
use super::{Case, Outcome};

/// Rows of data: more than a tile of the prompt form.
const ROWS: u32 = 37;

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (hidden, channels, values, heads, formats) in [
        (128, 320, 192, 6, [Q4, Q4, BF16]),
        (96, 50, 21, 3, [Q4_32, Q8, F32]),
        (37, 33, 130, 2, [F16, F32, BF16]),
        (1280, 700, 40, 48, [Q4, Q4, BF16]),
    ] {
        cases.push(Box::new(Project::new(random, hidden, [channels, values, heads], formats)));
    }
    // State rows of 8 lanes, of 2 and of 1.
    for sizes in [[2, 6, 32, 32, 4], [1, 2, 128, 96, 2], [2, 2, 96, 160, 3]] {
        cases.push(Box::new(Mix { pass: Pass::new(random, sizes) }));
        cases.push(Box::new(Replay { pass: Pass::new(random, sizes) }));
    }
    cases
}

struct Project {
    qkv: Weight,
    z: Weight,
    a: Weight,
    b: Weight,
    u: Vec<f32>,
}

impl Project {
    fn new(random: &mut Random, hidden: u32, [channels, values, heads]: [u32; 3], formats: [Format; 3]) -> Self {
        Project {
            qkv: Weight::random(random, channels, hidden, formats[0]),
            z: Weight::random(random, values, hidden, formats[1]),
            a: Weight::random(random, heads, hidden, formats[2]),
            b: Weight::random(random, heads, hidden, formats[2]),
            u: random.numbers(ROWS * hidden, 1.0),
        }
    }
}

impl Case for Project {
    fn operation(&self) -> &'static str {
        "GdnProject"
    }

    fn shape(&self) -> String {
        format!("{:?}, z {:?}", self.qkv.matrix, self.z.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (hidden, mut outcome) = (self.qkv.matrix.cols, Outcome::default());
        let (qkv, z, a, b) = (self.qkv.linear(on)?, self.z.linear(on)?, self.a.linear(on)?, self.b.linear(on)?);
        pieces(split, |first, rows| {
            let project = op::GdnProject {
                rows: mode.rows(rows),
                u: upload(on, rows_of(&self.u, first, rows, hidden))?,
                qkv: qkv.clone(),
                z: z.clone(),
                a: a.clone(),
                b: b.clone(),
                qkv_out: zeros(on, rows * qkv.matrix.rows)?,
                z_out: zeros(on, rows * z.matrix.rows)?,
                ab_out: zeros(on, rows * 2 * a.matrix.rows)?,
            };
            mode.submit(on, |recorder| recorder.gdn_project(project.clone()))?;
            outcome.numbers("qkv", download(on, &project.qkv_out)?);
            outcome.numbers("z", download(on, &project.z_out)?);
            outcome.numbers("ab", download(on, &project.ab_out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// Data of passes from a window and a state that are not zero.
struct Pass {
    shape: GdnShape,
    conv: Vec<f32>,
    a_log: Vec<f32>,
    dt_bias: Vec<f32>,
    norm: Vec<f32>,
    qkv: Vec<f32>,
    z: Vec<f32>,
    ab: Vec<f32>,
    window: Vec<f32>,
    state: Vec<f32>,
}

impl Pass {
    fn new(random: &mut Random, [key_heads, value_heads, key_dim, value_dim, kernel]: [u32; 5]) -> Self {
        let gate = if kernel == 4 { Gate::Sigmoid } else { Gate::Silu };
        let shape = GdnShape { key_heads, value_heads, key_dim, value_dim, kernel, gate, eps: 1e-6 };
        Pass {
            shape,
            conv: random.numbers(shape.channels() * kernel, 0.7),
            a_log: random.numbers(value_heads, 1.0),
            dt_bias: random.numbers(value_heads, 1.0),
            norm: random.norm(value_dim),
            qkv: random.numbers(ROWS * shape.channels(), 1.5),
            z: random.numbers(ROWS * shape.values(), 2.0),
            ab: random.numbers(ROWS * 2 * value_heads, 3.0),
            window: random.numbers((kernel - 1) * shape.channels(), 1.0),
            state: random.numbers(shape.state(), 0.3),
        }
    }

    fn title(&self) -> String {
        let GdnShape { key_heads, value_heads, key_dim, value_dim, kernel, gate, .. } = self.shape;
        format!("{key_heads} x {key_dim}, {value_heads} x {value_dim}, {kernel} taps, {gate:?}")
    }

    fn weights(&self, on: &dyn Backend) -> Result<GdnWeights> {
        Ok(GdnWeights {
            conv: upload(on, &self.conv)?,
            a_log: upload(on, &self.a_log)?,
            dt_bias: upload(on, &self.dt_bias)?,
            norm: upload(on, &self.norm)?,
        })
    }

    fn inputs(&self, on: &dyn Backend, rows: u32) -> Result<GdnInputs> {
        let shape = &self.shape;
        Ok(GdnInputs {
            k: zeros(on, rows * shape.key_heads * shape.key_dim)?,
            v: zeros(on, rows * shape.values())?,
            gates: zeros(on, rows * 2 * shape.value_heads)?,
        })
    }

    fn elsewhere(&self, on: &dyn Backend, held: &Held) -> Result<[Carry; 2]> {
        let to = |from: &Buffer| -> Result<Carry> {
            let state = on.alloc("self-test", from.bytes())?;
            Ok(Carry { from: Some(from.clone()), state })
        };
        Ok([to(&held.window)?, to(&held.state)?])
    }

    fn start(&self, on: &dyn Backend) -> Result<Held> {
        Ok(Held { window: upload(on, &self.window)?, state: upload(on, &self.state)? })
    }

    /// The operation over the rows `first .. first + rows`, its inputs not kept.
    fn mix(&self, on: &dyn Backend, mode: Mode, (first, rows): (u32, u32), carry: [Carry; 2]) -> Result<op::GdnMix> {
        let (shape, [window, state]) = (self.shape, carry);
        Ok(op::GdnMix {
            rows: mode.rows(rows),
            shape,
            weights: self.weights(on)?,
            qkv: upload(on, rows_of(&self.qkv, first, rows, shape.channels()))?,
            z: upload(on, rows_of(&self.z, first, rows, shape.values()))?,
            ab: upload(on, rows_of(&self.ab, first, rows, 2 * shape.value_heads))?,
            window,
            state,
            inputs: None,
            out: zeros(on, rows * shape.values())?,
        })
    }
}

/// What is carried from one operation to the next.
struct Held {
    window: Buffer,
    state: Buffer,
}

/// How many words of two buffers differ.
fn differing(on: &dyn Backend, a: &Buffer, b: &Buffer) -> Result<Vec<u32>> {
    let (a, b): (Vec<u32>, Vec<u32>) = (download(on, a)?, download(on, b)?);
    Ok(vec![a.iter().zip(&b).filter(|(a, b)| a != b).count() as u32])
}

/// Two passes over the same rows: one in place that keeps nothing, as in decode, and one that leaves what was before and
/// keeps its inputs, as in verification.
struct Mix {
    pass: Pass,
}

impl Case for Mix {
    fn operation(&self) -> &'static str {
        "GdnMix"
    }

    fn shape(&self) -> String {
        self.pass.title()
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn modes(&self) -> &'static [Mode] {
        &UNROUNDED_MODES
    }

    /// One for each of the two.
    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (pass, mut outcome) = (&self.pass, Outcome::default());
        let (decoded, mut verified) = (pass.start(on)?, pass.start(on)?);
        let mut differ = vec![0; split.len().min(1)];
        pieces(split, |first, rows| {
            let carry = [in_place(&decoded.window), in_place(&decoded.state)];
            let decode = pass.mix(on, mode, (first, rows), carry)?;
            let carry = pass.elsewhere(on, &verified)?;
            let next = Held { window: carry[0].state.clone(), state: carry[1].state.clone() };
            let inputs = pass.inputs(on, rows)?;
            let mut verify = pass.mix(on, mode, (first, rows), carry)?;
            verify.inputs = Some(inputs.clone());
            mode.submit(on, |recorder| {
                recorder.gdn_mix(decode.clone());
                recorder.gdn_mix(verify.clone());
            })?;
            for (a, b) in [(&decode.out, &verify.out), (&decoded.window, &next.window), (&decoded.state, &next.state)] {
                differ.iter_mut().zip(differing(on, a, b)?).for_each(|(all, more)| *all += more);
            }
            outcome.numbers("k", download(on, &inputs.k)?);
            outcome.numbers("v", download(on, &inputs.v)?);
            outcome.numbers("gates", download(on, &inputs.gates)?);
            outcome.numbers("out", download(on, &decode.out)?);
            verified = next;
            Ok(())
        })?;
        outcome.numbers("window", download(on, &decoded.window)?);
        outcome.numbers("state", download(on, &decoded.state)?);
        outcome.ids("words in which the two passes differ", differ);
        Ok(outcome)
    }
}

/// Replays beside the passes whose inputs they take: of half of the rows beside a pass of that half, and of all rows in
/// place.
struct Replay {
    pass: Pass,
}

impl Case for Replay {
    fn operation(&self) -> &'static str {
        "GdnReplay"
    }

    fn shape(&self) -> String {
        self.pass.title()
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn modes(&self) -> &'static [Mode] {
        &UNROUNDED_MODES
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (pass, mut outcome) = (&self.pass, Outcome::default());
        let (mut held, replayed) = (pass.start(on)?, upload(on, &pass.state)?);
        let mut differ = vec![0; split.len().min(1)];
        pieces(split, |first, rows| {
            let carry = pass.elsewhere(on, &held)?;
            let next = Held { window: carry[0].state.clone(), state: carry[1].state.clone() };
            let mut whole = pass.mix(on, mode, (first, rows), carry)?;
            let inputs = pass.inputs(on, rows)?;
            whole.inputs = Some(inputs.clone());
            let mut half = pass.mix(on, mode, (first, rows.div_ceil(2)), pass.elsewhere(on, &held)?)?;
            half.inputs = Some(pass.inputs(on, rows.div_ceil(2))?);
            let again = Carry { from: Some(held.state.clone()), state: zeros(on, pass.shape.state())? };
            let replay = |rows: u32, state: &Carry| op::GdnReplay {
                rows,
                shape: pass.shape,
                inputs: inputs.clone(),
                state: state.clone(),
            };
            mode.submit(on, |recorder| {
                recorder.gdn_mix(whole.clone());
                recorder.gdn_mix(half.clone());
                recorder.gdn_replay(replay(rows.div_ceil(2), &again));
                recorder.gdn_replay(replay(rows, &in_place(&replayed)));
            })?;
            for (a, b) in [(&again.state, &half.state.state), (&replayed, &next.state)] {
                differ.iter_mut().zip(differing(on, a, b)?).for_each(|(all, more)| *all += more);
            }
            held = next;
            Ok(())
        })?;
        outcome.numbers("state", download(on, &replayed)?);
        outcome.ids("words in which replay and pass differ", differ);
        Ok(outcome)
    }
}
