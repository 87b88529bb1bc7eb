//! Owns: cases of hyper-connections, embedding, head, the MTP fusion, copies and windows.

use ss_backend::op::{self, HyperWeights, Streams};
use ss_backend::{Backend, Format, Matrix, Result};

use super::rig::{
    BF16, F16, F32, Mode, Q4, Q4_32, Q8, Q8_64, Random, Weight, download, in_place, pieces, rows_of, upload, zeros,
};
use super::{Case, Outcome};

const EPS: f32 = 1e-6;

/// Rows of data: more than a tile of the prompt form.
const ROWS: u32 = 37;

/// More rows than any tile has, and outputs of a product that is multiplied in the tallest.
const MANY_ROWS: u32 = 133;
const MANY_OUTPUTS: u32 = 1030;

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (streams, hidden, lowrank, formats) in [
        (4, 128, 64, [Q4, Q4, BF16]),
        (2, 96, 32, [Q4_32, Q8, F32]),
        (3, 37, 5, [F32, F16, BF16]),
        (4, 320, 320, [Q4, Q4, F16]),
    ] {
        for mixer in [false, true] {
            cases.push(Box::new(Read::new(random, Streams { count: streams, hidden }, lowrank, formats, mixer)));
        }
        cases.push(Box::new(Fuse::new(random, Streams { count: streams, hidden }, formats[0], formats[1])));
    }
    for (hidden, cols, format) in [(128, 192, Q4), (96, 96, Q4_32), (50, 64, Q8_64), (33, 29, F16), (1300, 640, Q4)] {
        let weight = Weight::random(random, hidden, cols, format);
        cases.push(Box::new(Write::new(random, 4, weight, ROWS)));
        cases.push(Box::new(Embed::new(random, 3, cols, format)));
        cases.push(Box::new(Head::new(random, hidden, cols, format)));
    }
    let weight = Weight::random(random, MANY_OUTPUTS, 96, Q4_32);
    cases.push(Box::new(Write::new(random, 1, weight, MANY_ROWS)));
    for (width, depth) in [(200, 3), (33, 9)] {
        cases.push(Box::new(Window { inputs: random.numbers(ROWS * width, 1.0), width, depth }));
    }
    cases
}

struct Read {
    streams: Streams,
    norm: Vec<f32>,
    down: Weight,
    up: Weight,
    inject: Option<Weight>,
    x: Vec<f32>,
}

impl Read {
    fn new(random: &mut Random, streams: Streams, lowrank: u32, formats: [Format; 3], mixer: bool) -> Self {
        let width = streams.width();
        Read {
            streams,
            norm: random.norm(width),
            down: Weight::random(random, lowrank, width, formats[0]),
            up: Weight::random(random, width, lowrank, formats[1]),
            inject: (!mixer).then(|| Weight::random(random, streams.count, width, formats[2])),
            // A row before the first, which is skipped.
            x: random.numbers((ROWS + 1) * width, 2.0),
        }
    }
}

impl Case for Read {
    fn operation(&self) -> &'static str {
        "HcRead"
    }

    fn shape(&self) -> String {
        let kind = if self.inject.is_some() { "" } else { ", final" };
        let Streams { count, hidden } = self.streams;
        format!("{count} x {hidden}, rank {}, {:?}{kind}", self.down.matrix.rows, self.down.matrix.format)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (width, mut outcome) = (self.streams.width(), Outcome::default());
        let weights = HyperWeights {
            norm: upload(on, &self.norm)?,
            down: self.down.linear(on)?,
            up: self.up.linear(on)?,
            inject: self.inject.as_ref().map(|inject| inject.linear(on)).transpose()?,
        };
        pieces(split, |first, rows| {
            let read = op::HcRead {
                rows: mode.rows(rows),
                first: 1,
                streams: self.streams,
                eps: EPS,
                weights: weights.clone(),
                x: upload(on, rows_of(&self.x, first, rows + 1, width))?,
                normed: zeros(on, rows * width)?,
                lowrank: zeros(on, rows * self.down.matrix.rows)?,
                u: zeros(on, rows * self.streams.hidden)?,
                inject: zeros(on, rows * self.streams.count)?,
            };
            mode.submit(on, |recorder| recorder.hc_read(read.clone()))?;
            outcome.numbers("u", download(on, &read.u)?);
            outcome.numbers("inject", download(on, &read.inject)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

struct Write {
    streams: u32,
    rows: u32,
    weight: Weight,
    x: Vec<f32>,
    inject: Vec<f32>,
    out: Vec<f32>,
}

impl Write {
    fn new(random: &mut Random, streams: u32, weight: Weight, rows: u32) -> Self {
        let Matrix { rows: hidden, cols, .. } = weight.matrix;
        Write {
            streams,
            rows,
            weight,
            x: random.numbers(rows * cols, 2.0),
            inject: random.numbers(rows * streams, 1.0),
            out: random.numbers(rows * streams * hidden, 1.0),
        }
    }
}

impl Case for Write {
    fn operation(&self) -> &'static str {
        "ProjectWrite"
    }

    fn shape(&self) -> String {
        format!("{:?}", self.weight.matrix)
    }

    fn rows(&self) -> u32 {
        self.rows
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (hidden, cols) = (self.weight.matrix.rows, self.weight.matrix.cols);
        let (weight, mut outcome) = (self.weight.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let write = op::ProjectWrite {
                rows: mode.rows(rows),
                streams: Streams { count: self.streams, hidden },
                weight: weight.clone(),
                x: upload(on, rows_of(&self.x, first, rows, cols))?,
                inject: upload(on, rows_of(&self.inject, first, rows, self.streams))?,
                out: upload(on, rows_of(&self.out, first, rows, self.streams * hidden))?,
            };
            mode.submit(on, |recorder| recorder.project_write(write.clone()))?;
            outcome.numbers("out", download(on, &write.out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

struct Embed {
    table: Weight,
    copies: u32,
    ids: Vec<u32>,
}

impl Embed {
    fn new(random: &mut Random, copies: u32, hidden: u32, format: Format) -> Self {
        let table = Weight::random(random, 97, hidden, format);
        Embed { table, copies, ids: (0..ROWS).map(|row| if row == 0 { 96 } else { random.below(97) }).collect() }
    }
}

impl Case for Embed {
    fn operation(&self) -> &'static str {
        "Embed"
    }

    fn shape(&self) -> String {
        format!("{:?}", self.table.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (table, mut outcome) = (self.table.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let ids: Vec<u32> = self.ids.iter().skip(first as usize).take(rows as usize).copied().collect();
            let out = zeros(on, rows * self.copies * self.table.matrix.cols)?;
            let embed = op::Embed {
                rows: mode.rows(rows),
                ids: upload(on, &ids)?,
                table: table.clone(),
                copies: self.copies,
                out: out.clone(),
            };
            mode.submit(on, |recorder| recorder.embed(embed))?;
            outcome.numbers("out", download(on, &out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

struct Head {
    weight: Weight,
    x: Vec<f32>,
}

impl Head {
    fn new(random: &mut Random, vocab: u32, hidden: u32, format: Format) -> Self {
        Head { weight: Weight::random(random, vocab, hidden, format), x: random.numbers(ROWS * hidden, 2.0) }
    }
}

impl Case for Head {
    fn operation(&self) -> &'static str {
        "Head"
    }

    fn shape(&self) -> String {
        format!("{:?}", self.weight.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn most(&self) -> u32 {
        op::Head::MAX_ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (vocab, hidden) = (self.weight.matrix.rows, self.weight.matrix.cols);
        let (weight, mut outcome) = (self.weight.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let x = upload(on, rows_of(&self.x, first, rows, hidden))?;
            let logits = zeros(on, rows * vocab)?;
            let head = op::Head { rows: mode.rows(rows), x, weight: weight.clone(), logits: logits.clone() };
            mode.submit(on, |recorder| recorder.head(head))?;
            outcome.numbers("logits", download(on, &logits)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

struct Fuse {
    streams: Streams,
    norm_embedding: Vec<f32>,
    norm_hidden: Vec<f32>,
    fc_embedding: Weight,
    fc_hidden: Weight,
    e: Vec<f32>,
    m: Vec<f32>,
}

impl Fuse {
    fn new(random: &mut Random, streams: Streams, embedding: Format, hidden: Format) -> Self {
        Fuse {
            streams,
            norm_embedding: random.norm(streams.hidden),
            norm_hidden: random.norm(streams.width()),
            fc_embedding: Weight::random(random, streams.hidden, streams.hidden, embedding),
            fc_hidden: Weight::random(random, streams.hidden, streams.hidden, hidden),
            e: random.numbers(ROWS * streams.hidden, 2.0),
            m: random.numbers(ROWS * streams.width(), 2.0),
        }
    }
}

impl Case for Fuse {
    fn operation(&self) -> &'static str {
        "MtpFuse"
    }

    fn shape(&self) -> String {
        format!("{} x {:?}", self.streams.count, self.fc_hidden.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (hidden, width, mut outcome) = (self.streams.hidden, self.streams.width(), Outcome::default());
        let (fc_embedding, fc_hidden) = (self.fc_embedding.linear(on)?, self.fc_hidden.linear(on)?);
        pieces(split, |first, rows| {
            let fuse = op::MtpFuse {
                rows: mode.rows(rows),
                streams: self.streams,
                eps: EPS,
                e: upload(on, rows_of(&self.e, first, rows, hidden))?,
                m: upload(on, rows_of(&self.m, first, rows, width))?,
                norm_embedding: upload(on, &self.norm_embedding)?,
                norm_hidden: upload(on, &self.norm_hidden)?,
                fc_embedding: fc_embedding.clone(),
                fc_hidden: fc_hidden.clone(),
                scratch: zeros(on, rows * (hidden + width))?,
                out: zeros(on, rows * width)?,
            };
            mode.submit(on, |recorder| recorder.mtp_fuse(fuse.clone()))?;
            outcome.numbers("out", download(on, &fuse.out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// A window that is carried on over all rows.
struct Window {
    inputs: Vec<f32>,
    width: u32,
    depth: u32,
}

impl Case for Window {
    fn operation(&self) -> &'static str {
        "Window"
    }

    fn shape(&self) -> String {
        format!("{} rows of {}", self.depth, self.width)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (depth, width) = (self.depth, self.width);
        let (in_place_state, mut outcome) = (zeros(on, depth * width)?, Outcome::default());
        let mut moved = zeros(on, depth * width)?;
        pieces(split, |first, rows| {
            let inputs = upload(on, rows_of(&self.inputs, first, rows, width))?;
            let next = zeros(on, depth * width)?;
            let carried = op::Carry { from: Some(moved.clone()), state: next.clone() };
            mode.submit(on, |recorder| {
                for window in [in_place(&in_place_state), carried] {
                    recorder.window(op::Window { rows, depth, width, inputs: inputs.clone(), window });
                }
            })?;
            moved = next;
            Ok(())
        })?;
        outcome.numbers("in place", download(on, &in_place_state)?);
        outcome.numbers("moved", download(on, &moved)?);
        Ok(outcome)
    }
}
