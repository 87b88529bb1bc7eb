//! Owns: cases of the router, the experts and their sum.

use ss_backend::op::{self, SharedIn, SharedOut, Streams};
use ss_backend::{Backend, Format, NONE, Pool, RecordLayout, Result};

use super::rig::{
    BF16, F16, F32, Mode, Q4, Q4_32, Q8, Q8_64, Random, Weight, download, pieces, rows_of, upload, zeros,
};
use super::{Case, Outcome};

/// Rows of data: more than a tile of the prompt form.
const ROWS: u32 = 37;

/// Choices of a row, but for the router's own cases.
const CHOICES: u32 = 3;

/// Experts with weights; a choice may be one more, which has no slot.
const EXPERTS: u32 = 5;

/// All cases of this family.
pub(super) fn cases(random: &mut Random) -> Vec<Box<dyn Case>> {
    let mut cases: Vec<Box<dyn Case>> = Vec::new();
    for (experts, hidden, choices, format) in [(24, 128, 3, BF16), (600, 96, 10, F32), (16, 41, 16, F16)] {
        cases.push(Box::new(Route::new(random, experts, hidden, choices, format)));
    }
    cases.push(Box::new(Route::tied(random, 300, 16)));
    cases.push(Box::new(LookedUp(Route::new(random, 40, 32, 3, F32))));
    for (hidden, inner, formats, shared) in [
        (128, 64, [Q4, Q4, Q4], [Q4, Q4, Q4]),
        (96, 32, [Q4_32, Q8, F32], [F32, Q4_32, Q8]),
        (64, 50, [Q8_64, Q8_64, BF16], [Q8_64, F16, BF16]),
        (23, 10, [F16, F16, F32], [F16, F32, F16]),
        (704, 352, [Q4, Q4, Q4_32], [Q4, Q8_64, BF16]),
    ] {
        cases.push(Box::new(Experts::new(random, hidden, inner, formats, shared)));
    }
    for (count, hidden, format) in [(4, 128, BF16), (3, 37, F32), (2, 320, Q8)] {
        cases.push(Box::new(Combine::new(random, Streams { count, hidden }, format)));
    }
    cases
}

struct Route {
    weight: Weight,
    choices: u32,
    u: Vec<f32>,
}

impl Route {
    fn new(random: &mut Random, experts: u32, hidden: u32, choices: u32, format: Format) -> Self {
        let weight = Weight::random(random, experts, hidden, format);
        Route { weight, choices, u: random.numbers(ROWS * hidden, 2.0) }
    }

    /// Small whole logits, most of them tied, some of them negative zeros.
    fn tied(random: &mut Random, experts: u32, choices: u32) -> Self {
        let numbers: Vec<f32> = (0..experts).map(|_| random.below(5) as f32 - 3.0).collect();
        let u = (0..ROWS).map(|row| if row % 2 == 0 { 1.0 } else { -1.0 }).collect();
        Route { weight: Weight::of(experts, 1, &numbers), choices, u }
    }
}

impl Case for Route {
    fn operation(&self) -> &'static str {
        "Route"
    }

    fn shape(&self) -> String {
        format!("{} of {:?}", self.choices, self.weight.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (experts, hidden) = (self.weight.matrix.rows, self.weight.matrix.cols);
        let (weight, mut outcome) = (self.weight.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let route = op::Route {
                rows: mode.rows(rows),
                choices: self.choices,
                u: upload(on, rows_of(&self.u, first, rows, hidden))?,
                weight: weight.clone(),
                logits: zeros(on, rows * experts)?,
                experts: zeros(on, rows * self.choices)?,
                weights: zeros(on, rows * self.choices)?,
                lookup: None,
            };
            mode.submit(on, |recorder| recorder.route(route.clone()))?;
            outcome.numbers("logits", download(on, &route.logits)?);
            outcome.ids("experts", download(on, &route.experts)?);
            outcome.numbers("weights", download(on, &route.weights)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// The same, some experts having no slot: the operation after the router must run if every row found all it chose, and
/// only then.
struct LookedUp(Route);

impl LookedUp {
    /// The layer that is looked up, behind another.
    const LAYER: u32 = 1;

    /// The slot of each expert, none for one in six.
    fn table(&self) -> Vec<u32> {
        let experts = self.0.weight.matrix.rows;
        let slot = |expert: u32| if expert % 6 == 4 { NONE } else { 7 * expert };
        (0..experts).map(|_| 0).chain((0..experts).map(slot)).collect()
    }
}

impl Case for LookedUp {
    fn operation(&self) -> &'static str {
        "Route"
    }

    fn shape(&self) -> String {
        format!("{}, slots looked up", self.0.shape())
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let Route { weight, choices, u } = &self.0;
        let (experts, hidden, choices) = (weight.matrix.rows, weight.matrix.cols, *choices);
        let (weight, mut outcome) = (weight.linear(on)?, Outcome::default());
        let table = upload(on, &self.table())?;
        pieces(split, |first, rows| {
            let of_layer = rows * choices;
            let mut log = vec![0; 1 + 2 * of_layer as usize];
            log[0] = NONE;
            let (slots, control) = (zeros(on, of_layer)?, upload(on, &log)?);
            let (mark, marked) = (upload(on, &[1u32])?, zeros(on, 1)?);
            let lookup =
                op::Lookup { layer: Self::LAYER, table: table.clone(), slots: slots.clone(), control: control.clone() };
            let route = op::Route {
                rows: mode.rows(rows),
                choices,
                u: upload(on, rows_of(u, first, rows, hidden))?,
                weight: weight.clone(),
                logits: zeros(on, rows * experts)?,
                experts: zeros(on, of_layer)?,
                weights: zeros(on, of_layer)?,
                lookup: Some(lookup),
            };
            let copy = op::Copy { from: mark, from_offset: 0, to: marked.clone(), to_offset: 0, bytes: 4 };
            mode.submit(on, |recorder| {
                recorder.route(route.clone());
                recorder.copy(copy);
            })?;
            let (slots, control) = (download::<u32>(on, &slots)?, download::<u32>(on, &control)?);
            let ran = download::<u32>(on, &marked)? == [1];
            let halted = slots.contains(&NONE);
            let told = control.first() == Some(if halted { &Self::LAYER } else { &NONE });
            outcome.ids("the lookup is obeyed", vec![u32::from(told && ran != halted); rows as usize]);
            outcome.ids("slots", slots);
            outcome.ids("experts", control.into_iter().skip(1 + of_layer as usize).collect());
            outcome.numbers("weights", download(on, &route.weights)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// Both halves of routed and shared experts; some choices have no slot. The shared expert is half as wide again.
struct Experts {
    layout: RecordLayout,
    /// Gate, up, down of each expert.
    experts: Vec<[Weight; 3]>,
    shared: [Weight; 3],
    u: Vec<f32>,
    /// Expert of each (row, choice).
    chosen: Vec<u32>,
    rows: u32,
}

impl Experts {
    fn new(random: &mut Random, hidden: u32, inner: u32, formats: [Format; 3], shared: [Format; 3]) -> Self {
        Self::of_rows(ROWS, random, [hidden, inner], formats, shared)
    }

    fn of_rows(
        rows: u32,
        random: &mut Random,
        [hidden, inner]: [u32; 2],
        formats: [Format; 3],
        shared: [Format; 3],
    ) -> Self {
        let make = |random: &mut Random, inner: u32, [gate, up, down]: [Format; 3]| {
            [(inner, hidden, gate), (inner, hidden, up), (hidden, inner, down)]
                .map(|(rows, cols, format)| Weight::random(random, rows, cols, format))
        };
        let experts: Vec<_> = (0..EXPERTS).map(|_| make(random, inner, formats)).collect();
        let shared = make(random, 2 * inner, shared);
        let layout = match experts.first() {
            Some([gate, up, down]) => RecordLayout::new(gate.matrix, up.matrix, down.matrix),
            None => RecordLayout::new(shared[0].matrix, shared[1].matrix, shared[2].matrix),
        };
        let u = random.numbers(rows * hidden, 1.0);
        let chosen = (0..rows * CHOICES).map(|_| random.below(EXPERTS + 1)).collect();
        Experts { layout, experts, shared, u, chosen, rows }
    }

    /// The slot of an expert: one is left free, and they lie in another order.
    fn slot(expert: u32) -> u32 {
        if expert < EXPERTS { EXPERTS - expert } else { NONE }
    }

    fn pool(&self, on: &dyn Backend) -> Result<Pool> {
        let pool = on.alloc_pool(&self.layout, EXPERTS + 1)?;
        for (expert, [gate, up, down]) in (0..).zip(&self.experts) {
            let mut writer = on.open_slot(&pool, Self::slot(expert))?;
            gate.place(&self.layout.gate, writer.bytes());
            up.place(&self.layout.up, writer.bytes());
            down.place(&self.layout.down, writer.bytes());
            writer.finish()?;
        }
        Ok(pool)
    }
}

impl Case for Experts {
    fn operation(&self) -> &'static str {
        "ExpertsIn, ExpertsOut"
    }

    fn shape(&self) -> String {
        format!("{:?}, {:?}", self.layout.gate.matrix, self.layout.down.matrix.format)
    }

    fn rows(&self) -> u32 {
        self.rows
    }

    fn dispatches(&self) -> Option<u64> {
        Some(2)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (inner, hidden) = (self.layout.gate.matrix.rows, self.layout.gate.matrix.cols);
        let shared_inner = self.shared[0].matrix.rows;
        let [gate, up, down] = [self.shared[0].linear(on)?, self.shared[1].linear(on)?, self.shared[2].linear(on)?];
        let (pool, mut outcome) = (self.pool(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let chosen = self.chosen.iter().skip((first * CHOICES) as usize).take((rows * CHOICES) as usize);
            let first_half = op::ExpertsIn {
                rows: mode.rows(rows),
                choices: CHOICES,
                u: upload(on, rows_of(&self.u, first, rows, hidden))?,
                pool: pool.clone(),
                slots: upload(on, &chosen.map(|&expert| Self::slot(expert)).collect::<Vec<_>>())?,
                out: zeros(on, rows * CHOICES * inner)?,
                shared: Some(SharedIn { gate: gate.clone(), up: up.clone(), out: zeros(on, rows * shared_inner)? }),
            };
            let shared_x = first_half.shared.as_ref().map(|shared| shared.out.clone());
            let shared_out = zeros(on, rows * hidden)?;
            let second_half = op::ExpertsOut {
                rows: mode.rows(rows),
                choices: CHOICES,
                x: first_half.out.clone(),
                pool: pool.clone(),
                slots: first_half.slots.clone(),
                out: zeros(on, rows * CHOICES * hidden)?,
                shared: shared_x.clone().map(|x| SharedOut { x, down: down.clone(), out: shared_out.clone() }),
            };
            mode.submit(on, |recorder| {
                recorder.experts_in(first_half.clone());
                recorder.experts_out(second_half.clone());
            })?;
            outcome.numbers("inner", download(on, &first_half.out)?);
            outcome.numbers("routed", download(on, &second_half.out)?);
            outcome.numbers("shared", download(on, &shared_out)?);
            shared_x.iter().try_for_each(|x| {
                outcome.numbers("shared inner", download(on, x)?);
                Ok(())
            })
        })?;
        Ok(outcome)
    }
}

struct Combine {
    streams: Streams,
    routed: Vec<f32>,
    weights: Vec<f32>,
    shared: Vec<f32>,
    gate: Weight,
    u: Vec<f32>,
    inject: Vec<f32>,
    before: Vec<f32>,
}

impl Combine {
    fn new(random: &mut Random, streams: Streams, format: Format) -> Self {
        let hidden = streams.hidden;
        Combine {
            streams,
            routed: random.numbers(ROWS * CHOICES * hidden, 1.0),
            weights: random.norm(ROWS * CHOICES),
            shared: random.numbers(ROWS * hidden, 1.0),
            gate: Weight::random(random, 1, hidden, format),
            u: random.numbers(ROWS * hidden, 1.0),
            inject: random.norm(ROWS * streams.count),
            before: random.numbers(ROWS * streams.width(), 1.0),
        }
    }
}

impl Case for Combine {
    fn operation(&self) -> &'static str {
        "Combine"
    }

    fn shape(&self) -> String {
        format!("{} x {:?}", self.streams.count, self.gate.matrix)
    }

    fn rows(&self) -> u32 {
        ROWS
    }

    fn dispatches(&self) -> Option<u64> {
        Some(1)
    }

    fn run(&self, on: &dyn Backend, mode: Mode, split: &[u32]) -> Result<Outcome> {
        let (hidden, count, width) = (self.streams.hidden, self.streams.count, self.streams.width());
        let (gate, mut outcome) = (self.gate.linear(on)?, Outcome::default());
        pieces(split, |first, rows| {
            let of = |all: &[f32], width: u32| upload(on, rows_of(all, first, rows, width));
            let combine = op::Combine {
                rows: mode.rows(rows),
                choices: CHOICES,
                streams: self.streams,
                routed: of(&self.routed, CHOICES * hidden)?,
                weights: of(&self.weights, CHOICES)?,
                shared: of(&self.shared, hidden)?,
                gate: gate.clone(),
                u: of(&self.u, hidden)?,
                inject: of(&self.inject, count)?,
                out: of(&self.before, width)?,
            };
            mode.submit(on, |recorder| recorder.combine(combine.clone()))?;
            outcome.numbers("out", download(on, &combine.out)?);
            Ok(())
        })?;
        Ok(outcome)
    }
}

/// Experts of a shape of one's own, as many rows as one operation takes.
#[cfg(all(test, feature = "msl"))]
pub(crate) fn experts(
    random: &mut Random,
    widths: [u32; 2],
    formats: [Format; 3],
    shared: [Format; 3],
) -> Box<dyn Case> {
    Box::new(Experts::of_rows(super::rig::MOST_GENERATED, random, widths, formats, shared))
}
