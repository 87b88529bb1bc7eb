//! A reply with and without lookahead, and what both came to.

use std::fmt;
use std::time::{Duration, Instant};

use ss_backend::Arithmetic;
use ss_benches::{Kernels, model_over};
use ss_generate::{Sampler, SamplerSettings};
use ss_model::{Cancel, Model, Prompt, Want};
use ss_stream::{Counters, DiskPace, LookaheadOptions, PoolSize};

use crate::texts::{REPLY, Text};

/// Rows of a prefill pass.
const PASS: u32 = 512;

/// A reply and what it took, its prompt left out.
pub struct Reply {
    pub ids: Vec<u32>,
    pub took: Duration,
    pub did: Counters,
}

impl Reply {
    /// Reads the prompt and writes the reply. What ends a reply is not drawn, so that all are of one length.
    pub fn write(model: &mut Model, text: &Text) -> Reply {
        let ends = model.checkpoint().stop_ids().expect("ids that end a reply");
        let logit_bias = ends.into_iter().map(|id| (id, -100.0)).collect();
        let mut sampler =
            Sampler::new(&SamplerSettings { logit_bias, ..text.settings.clone() }, model.geometry().vocab);
        let (mut state, cancel) = (model.new_state().expect("room for a state"), Cancel::default());
        model.begin_reply(&sampler.logit_settings(), &text.prompt).expect("settings");
        let prompt = Prompt { ids: &text.prompt, positions: None, pass: PASS, want: Want::Likeliest };
        let read = model.read(&mut state, &prompt, &cancel, &mut |_| {}).expect("a prompt");
        let mut likeliest = read.likeliest.expect("the likeliest ids");
        let before = model.store().counters();
        let started = Instant::now();
        let mut ids = Vec::with_capacity(REPLY);
        let mut decoder = model.decoder(&mut state).expect("a decoder");
        while ids.len() < REPLY {
            let id = sampler.sample_listed(&likeliest).expect("an id among the likeliest");
            sampler.advance();
            ids.push(id);
            likeliest = decoder.step(id, &cancel).expect("a step");
        }
        let took = started.elapsed();
        Reply { ids, took, did: model.store().counters().since(before) }
    }
}

/// The disk that is imitated.
#[derive(Clone, Copy)]
pub struct Disk {
    pub gbps: f64,
    pub latency_us: f64,
}

impl fmt::Display for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "--disk-gbps {:.3} --disk-latency-us {:.0}", self.gbps, self.latency_us)
    }
}

/// Two models over such a disk: without lookahead and with it.
pub struct Pair {
    off: Model,
    on: Model,
    pub disk: Disk,
}

impl Pair {
    /// Both with so many slots, one with such lookahead. `disk` follows from the bytes of a record.
    pub fn new(slots: PoolSize, lookahead: LookaheadOptions, disk: impl Fn(u64) -> Disk) -> Self {
        let mut chosen = Disk { gbps: 0.0, latency_us: 0.0 };
        let mut made = |on| {
            model_over(Kernels::Fast, slots, Arithmetic::Exact, |checkpoint, store| {
                chosen = disk(checkpoint.expert_layout().pieces().map(|piece| piece.bytes).sum());
                store.pace = Some(DiskPace::new(Some(chosen.gbps), chosen.latency_us).expect("a disk"));
                store.lookahead = LookaheadOptions { on, ..lookahead };
            })
        };
        let (off, on) = (made(false), made(true));
        Pair { off, on, disk: chosen }
    }

    /// Writes a reply both ways.
    pub fn write(&mut self, text: &Text, off_first: bool) -> [Reply; 2] {
        let early = off_first.then(|| Reply::write(&mut self.off, text));
        let on = Reply::write(&mut self.on, text);
        let off = early.unwrap_or_else(|| Reply::write(&mut self.off, text));
        assert!(off.ids == on.ids, "lookahead changed a reply");
        [off, on]
    }
}

/// What all pairs came to.
#[derive(Default)]
pub struct Tally {
    off: Vec<Reply>,
    on: Vec<Reply>,
}

impl Tally {
    pub fn add(&mut self, [off, on]: [Reply; 2]) {
        self.off.push(off);
        self.on.push(on);
    }
}

/// So much a token, on the average.
fn a_token(replies: &[Reply], count: impl Fn(&Reply) -> f64) -> f64 {
    replies.iter().map(count).sum::<f64>() / replies.iter().map(|reply| reply.ids.len() as f64).sum::<f64>()
}

/// Records that decode waited for and that nothing had read ahead.
fn demand_misses(reply: &Reply) -> f64 {
    reply.did.experts.misses as f64
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:>4}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}{:>10}",
            "", "demand", "issued", "there", "joined", "vain", "ms waited", "ms", "tok/s"
        )?;
        for (name, replies) in [("off", &self.off), ("on", &self.on)] {
            let ms = 1e3 * a_token(replies, |r| r.took.as_secs_f64());
            writeln!(
                f,
                "{name:>4}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{:>10.2}{ms:>10.2}{:>10.1}",
                a_token(replies, demand_misses),
                a_token(replies, |r| r.did.early.issued as f64),
                a_token(replies, |r| r.did.early.adopted as f64),
                a_token(replies, |r| r.did.early.joined as f64),
                a_token(replies, |r| r.did.early.expired as f64),
                a_token(replies, |r| 1e3 * r.did.experts.waited.as_secs_f64()),
                1e3 / ms,
            )?;
        }
        let rate = |(off, on): (&Reply, &Reply)| off.took.as_secs_f64() / on.took.as_secs_f64();
        let mut rates: Vec<f64> = self.off.iter().zip(&self.on).map(rate).collect();
        rates.sort_by(f64::total_cmp);
        let at = |share: f64| rates.get((share * (rates.len() as f64 - 1.0)).round() as usize).copied().unwrap_or(0.0);
        write!(
            f,
            "demand misses {:+.1} %; rate on / off: median {:.3}, quartiles {:.3} and {:.3}, {} pairs",
            100.0 * (a_token(&self.on, demand_misses) / a_token(&self.off, demand_misses) - 1.0),
            at(0.5),
            at(0.25),
            at(0.75),
            rates.len()
        )
    }
}
