//! Owns: cases of the n-gram injection.

use ss_backend::op::{self, Carry, PleShape, Streams};
use ss_backend::{Backend, Format, Result};

use super::rig::{
    F16, Mode, Q4, Q8, Random, UNROUNDED_MODES, Weight, download, in_place, pieces, rows_of, upload, zeros,
};
use super::{Case, Outcome};

/// Rows of data: more than a tile of the prompt form.
const ROWS: u32 = 37;

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (count, hidden, ple, formats) in
        [(4, 128, 64, [Q4, Q4]), (3, 37, 96, [Q8, F16]), (2, 160, 29, [F16, F16]), (4, 320, 640, [Q4, Q4])]
    {
        let streams = Streams { count, hidden };
        cases.push(Box::new(Project::new(random, streams, ple, formats)));
        let shape = PleShape { streams, kernel: 4, dilation: 3, eps: 1e-6 };
        cases.push(Box::new(Mix::new(random, shape)));
    }
    let shape = PleShape { streams: Streams { count: 1, hidden: 5 }, kernel: 2, dilation: 1, eps: 1e-5 };
    cases.push(Box::new(Mix::new(random, shape)));
    cases
}

struct Project {
    key: Weight,
    value: Weight,
    e: Vec<f32>,
}

impl Project {
    fn new(random: &mut Random, streams: Streams, ple: u32, formats: [Format; 2]) -> Self {
        Project {
            key: Weight::random(random, streams.width(), ple, formats[0]),
            value: Weight::random(random, streams.hidden, ple, formats[1]),
            e: random.numbers(ROWS * ple, 1.0),
        }
    }
}

impl Case for Project {
    fn operation(&self) -> &'static str {
        "PleProject"
    }

    fn shape(&self) -> String {
        format!("{:?}, value {:?}", self.key.matrix, self.value.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (key, value, mut outcome) = (self.key.linear(on)?, self.value.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let project = op::PleProject {
                rows: mode.rows(rows),
                e: upload(on, rows_of(&self.e, first, rows, key.matrix.cols))?,
                key: key.clone(),
                value: value.clone(),
                keys: zeros(on, rows * key.matrix.rows)?,
                values: zeros(on, rows * value.matrix.rows)?,
            };
            mode.submit(on, |recorder| recorder.ple_project(project.clone()))?;
            outcome.numbers("keys", download(on, &project.keys)?);
            outcome.numbers("values", download(on, &project.values)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// Gate, convolution and sum; the first row has scores of zero. The window is carried on in place and, beside it, from
/// one buffer to the next.
struct Mix {
    shape: PleShape,
    norms: [Vec<f32>; 3],
    conv: Vec<f32>,
    keys: Vec<f32>,
    values: Vec<f32>,
    window: Vec<f32>,
    x: Vec<f32>,
}

impl Mix {
    fn new(random: &mut Random, shape: PleShape) -> Self {
        let (width, hidden) = (shape.streams.width(), shape.streams.hidden);
        let mut keys = random.numbers(ROWS * width, 1.0);
        keys.iter_mut().take(width as usize).for_each(|key| *key = 0.0);
        Mix {
            shape,
            norms: [random.norm(width), random.norm(width), random.norm(width)],
            conv: random.numbers(shape.kernel * width, 0.5),
            keys,
            values: random.numbers(ROWS * hidden, 1.0),
            window: random.numbers(shape.window() * width, 1.0),
            x: random.numbers(ROWS * width, 1.0),
        }
    }

    fn mix(&self, on: &dyn Backend, mode: Mode, (first, rows): (u32, u32), window: Carry) -> Result<op::PleMix> {
        let Streams { hidden, .. } = self.shape.streams;
        let (width, [norm_key, norm_query, norm_conv]) = (self.shape.streams.width(), &self.norms);
        Ok(op::PleMix {
            rows: mode.rows(rows),
            shape: self.shape,
            norm_key: upload(on, norm_key)?,
            norm_query: upload(on, norm_query)?,
            norm_conv: upload(on, norm_conv)?,
            conv: upload(on, &self.conv)?,
            keys: upload(on, rows_of(&self.keys, first, rows, width))?,
            values: upload(on, rows_of(&self.values, first, rows, hidden))?,
            inputs: zeros(on, rows * width)?,
            window,
            out: upload(on, rows_of(&self.x, first, rows, width))?,
        })
    }
}

impl Case for Mix {
    fn operation(&self) -> &'static str {
        "PleMix"
    }

    fn shape(&self) -> String {
        let PleShape { streams: Streams { count, hidden }, kernel, dilation, .. } = self.shape;
        format!("{count} x {hidden}, {kernel} taps {dilation} apart")
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn modes(&self) -> &'static [Mode] {
        &UNROUNDED_MODES
    }

    /// Two for each of the two.
    fn dispatches(&self) -> Option<u64> {
        Some(4)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let mut outcome = Outcome::default();
        let (held, mut moved) = (upload(on, &self.window)?, upload(on, &self.window)?);
        pieces(split, |first, rows| {
            let next = on.alloc("self-test", moved.bytes())?;
            let carry = Carry { from: Some(moved.clone()), state: next.clone() };
            let stays = self.mix(on, mode, (first, rows), in_place(&held))?;
            let moves = self.mix(on, mode, (first, rows), carry)?;
            mode.submit(on, |recorder| {
                recorder.ple_mix(stays.clone());
                recorder.ple_mix(moves.clone());
            })?;
            outcome.numbers("inputs", download(on, &stays.inputs)?);
            outcome.numbers("out", download(on, &stays.out)?);
            outcome.numbers("out, moved", download(on, &moves.out)?);
            moved = next;
            Ok(())
        })?;
        outcome.numbers("window", download(on, &held)?);
        outcome.numbers("window, moved", download(on, &moved)?);
        Ok(outcome)
    }
}
