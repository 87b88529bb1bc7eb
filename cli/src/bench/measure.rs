//! Owns: what is measured: prompts read and replies written, behind so many tokens, and how.
//! Refuses: tests that no window holds; longer ones than it holds are cut, with a note.
//! Invariants: a test does the same work on every device: ids follow from a seed and from the model alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ss_backend::{Counters, DeviceKind, KernelTime};
use ss_generate::{Sampler, SamplerSettings};
use ss_model::{Cancel, Model, Prompt, State, Want};

use crate::args::BenchArgs;

/// Where ids come from.
const SEED: u64 = 1;

/// How long a GPU works before it is measured: an H200 takes about a second to reach its clocks.
const WAKING: Duration = Duration::from_secs(1);

/// What `--full` measures.
const FULL: [Test; 6] = [
    Test { kind: Kind::Prompt, tokens: 512, depth: 0 },
    Test { kind: Kind::Prompt, tokens: 2048, depth: 0 },
    Test { kind: Kind::Prompt, tokens: 8192, depth: 0 },
    Test { kind: Kind::Reply, tokens: 128, depth: 0 },
    Test { kind: Kind::Reply, tokens: 128, depth: 4096 },
    Test { kind: Kind::Reply, tokens: 128, depth: 32_768 },
];

/// What a test does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Reads a prompt.
    Prompt,
    /// Writes a reply.
    Reply,
}

/// One test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Test {
    /// What it does.
    pub kind: Kind,
    /// Tokens read or written.
    pub tokens: u32,
    /// Tokens before them.
    pub depth: u32,
}

/// All tests of a run.
#[derive(Debug)]
pub struct Plan {
    /// In the order of their rows.
    pub tests: Vec<Test>,
    /// What was changed to fit the window.
    pub notes: Vec<String>,
}

/// What a test took, the uncounted run left out.
#[derive(Clone, Debug, Default)]
pub struct Measured {
    /// Time of each run.
    pub times: Vec<Duration>,
    /// Experts that had a slot, and experts asked for.
    pub hits: u64,
    /// See `hits`.
    pub asked: u64,
    /// Bytes read from files.
    pub bytes_read: u64,
    /// Records that passes did not read, because they shared a read.
    pub spared: u64,
    /// Bytes of records that came from host memory.
    pub ram_bytes: u64,
    /// Kernels started.
    pub dispatches: u64,
    /// Submissions.
    pub submissions: u64,
    /// Readbacks.
    pub readbacks: u64,
    /// Records read early that were used, and those that were not.
    pub early: (u64, u64),
    /// Where the time went.
    pub split: Split,
    /// Time on the device by kernel, where kernels are timed.
    pub kernels: BTreeMap<Arc<str>, KernelTime>,
}

/// Where the time of a test went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Split {
    /// All of it.
    pub wall: Duration,
    /// The device worked.
    pub busy: Duration,
    /// Work was in flight.
    pub in_flight: Duration,
    /// The host waited for files.
    pub disk: Duration,
    /// The host encoded while nothing was in flight.
    pub encoding: Duration,
}

impl Measured {
    /// Counts what kernels took from `before` to `now`.
    fn count_kernels(&mut self, before: &Counters, now: &Counters) {
        for (label, time) in &now.kernels {
            let earlier = before.kernels.get(label).copied().unwrap_or_default();
            let kernel = self.kernels.entry(Arc::clone(label)).or_default();
            kernel.calls += time.calls - earlier.calls;
            kernel.time += time.time.saturating_sub(earlier.time);
        }
    }
}

impl Split {
    /// Parts that add up to the whole: device busy, idle (handed over, not yet begun or not yet seen to be finished), disk,
    /// encoding, the rest of the host.
    pub fn parts(self) -> [(&'static str, Duration); 5] {
        let busy = self.busy.min(self.wall);
        let idle = self.in_flight.saturating_sub(self.busy).min(self.wall - busy);
        let mut left = self.wall - busy - idle;
        let mut take = |time: Duration| {
            let taken = time.min(left);
            left -= taken;
            taken
        };
        let (disk, encoding) = (take(self.disk), take(self.encoding));
        [("device busy", busy), ("idle", idle), ("disk wait", disk), ("encoding", encoding), ("host other", left)]
    }
}

impl Plan {
    /// The tests that the flags ask for, in a window of so many tokens.
    ///
    /// # Errors
    /// When they ask for none, or for tokens behind a full window.
    pub fn new(args: &BenchArgs, window: u32) -> Result<Self> {
        let mut plan = Plan { tests: Vec::new(), notes: Vec::new() };
        if args.full {
            for test in FULL {
                match window.checked_sub(test.depth).filter(|&room| room > 0) {
                    Some(room) => plan.add(test, room),
                    None => {
                        plan.notes.push(format!("{} is left out: the window of this model ends before it", test.name()))
                    }
                }
            }
            return Ok(plan);
        }
        for &depth in &args.depth {
            let Some(room) = window.checked_sub(depth).filter(|&room| room > 0) else {
                bail!("`--depth {depth}` leaves no room: the window of this model has {window} tokens");
            };
            let prompts = args.prompt_tokens.iter().map(|&tokens| (Kind::Prompt, tokens));
            let replies = args.reply_tokens.iter().map(|&tokens| (Kind::Reply, tokens));
            prompts.chain(replies).filter(|(_, tokens)| *tokens > 0).for_each(|(kind, tokens)| {
                plan.add(Test { kind, tokens, depth }, room);
            });
        }
        match plan.tests.is_empty() {
            true => bail!("there is nothing to measure: give `--prompt-tokens` or `--reply-tokens` from 1"),
            false => Ok(plan),
        }
    }

    fn add(&mut self, asked: Test, room: u32) {
        let test = Test { tokens: asked.tokens.min(room), ..asked };
        if test != asked {
            self.notes.push(format!("{} becomes {}: the window of this model ends there", asked.name(), test.name()));
        }
        if !self.tests.contains(&test) {
            self.tests.push(test);
        }
    }
}

impl Test {
    /// Its name in the table, in the manner of other benches: `pp512`, `tg128 @ 4096`.
    pub fn name(self) -> String {
        let kind = match self.kind {
            Kind::Prompt => "pp",
            Kind::Reply => "tg",
        };
        match self.depth {
            0 => format!("{kind}{}", self.tokens),
            depth => format!("{kind}{} @ {depth}", self.tokens),
        }
    }

    /// Runs it as often as the flags say, once and on a GPU for a second before it counts.
    ///
    /// # Errors
    /// When a file cannot be read, or the device fails.
    pub fn measure(self, model: &mut Model, args: &BenchArgs) -> Result<Measured> {
        let ids = ids(self.depth + self.tokens, model.geometry().vocab);
        let (before, work) = ids.split_at(self.depth as usize);
        let mut start = model.new_state()?;
        read(model, &mut start, before, args.prefill_pass)?;
        let mut measured = Measured::default();
        let waking = if model.backend().facts().kind == DeviceKind::Hardware { WAKING } else { Duration::ZERO };
        let mut woken: Option<Duration> = None;
        while measured.times.len() < args.repetitions as usize {
            let mut state = start.fork();
            let (stream, device) = (model.store().counters(), model.backend().counters());
            let clock = Instant::now();
            match self.kind {
                Kind::Prompt => read(model, &mut state, work, args.prefill_pass)?,
                Kind::Reply => write(model, &mut state, before, work)?,
            }
            let time = clock.elapsed();
            // At least one run goes first: it builds pipelines and fills the pool.
            if woken.is_none_or(|woken| woken < waking) {
                woken = Some(woken.unwrap_or_default() + time);
                continue;
            }
            let (stream, now) = (model.store().counters().since(stream), model.backend().counters());
            measured.times.push(time);
            measured.early.0 += stream.early.adopted + stream.early.joined;
            measured.early.1 += stream.early.expired;
            let busy = |counters: &Counters| counters.stages.values().sum::<Duration>();
            measured.split.wall += time;
            measured.split.busy += busy(&now).saturating_sub(busy(&device));
            measured.split.in_flight += now.in_flight.saturating_sub(device.in_flight);
            measured.split.disk += stream.experts.waited + stream.ngrams.waited;
            measured.split.encoding += now.encoding.saturating_sub(device.encoding);
            measured.count_kernels(&device, &now);
            measured.hits += stream.experts.hits;
            measured.asked += stream.experts.hits + stream.experts.misses;
            measured.bytes_read += stream.bytes_read();
            measured.spared += stream.experts.spared;
            measured.ram_bytes += stream.ram.bytes;
            measured.dispatches += now.dispatches - device.dispatches;
            measured.submissions += now.submissions - device.submissions;
            measured.readbacks += now.readbacks - device.readbacks;
        }
        Ok(measured)
    }
}

/// Reads a prompt, as an answer does.
fn read(model: &mut Model, state: &mut State, ids: &[u32], pass: u32) -> Result<()> {
    if !ids.is_empty() {
        let prompt = Prompt { ids, positions: None, pass, want: Want::Last };
        model.read(state, &prompt, &Cancel::default(), &mut |_| {})?;
    }
    Ok(())
}

/// Writes as many tokens as there are ids. Each is drawn as an answer draws it, then the next id is fed whatever was drawn, so
/// that n-grams and experts vary as in a text.
fn write(model: &mut Model, state: &mut State, before: &[u32], ids: &[u32]) -> Result<()> {
    let settings = SamplerSettings { temperature: 0.7, top_k: 20, presence_penalty: 0.5, ..SamplerSettings::greedy() };
    let mut sampler = Sampler::new(&settings, model.geometry().vocab);
    model.begin_reply(&sampler.logit_settings(), before)?;
    let mut decoder = model.decoder(state)?;
    for &id in ids {
        let likeliest = decoder.step(id, &Cancel::default())?;
        if sampler.sample_listed(&likeliest).is_none() {
            sampler.sample(&decoder.adjusted_row()?);
        }
        sampler.advance();
    }
    Ok(())
}

/// So many ids below `vocab`, the same each time (xorshift).
fn ids(count: u32, vocab: u32) -> Vec<u32> {
    let mut bits = SEED;
    let mut next = || {
        bits ^= bits << 13;
        bits ^= bits >> 7;
        bits ^= bits << 17;
        ((bits >> 32) % u64::from(vocab.max(1))) as u32
    };
    (0..count).map(|_| next()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn plan(line: &[&str], window: u32) -> Result<Plan> {
        match Cli::parse_from([&["ss", "bench"], line].concat()).command {
            Command::Bench(args) => Plan::new(&args, window),
            other => panic!("{other:?}"),
        }
    }

    fn names(line: &[&str], window: u32) -> Vec<String> {
        plan(line, window).unwrap().tests.into_iter().map(Test::name).collect()
    }

    #[test]
    fn the_tests_are_prompts_and_replies_at_every_depth() {
        assert_eq!(names(&[], 4096), ["pp512", "tg128"]);
        assert_eq!(
            names(&["-p", "0", "-n", "8,16", "--depth", "0,100"], 4096),
            ["tg8", "tg16", "tg8 @ 100", "tg16 @ 100"]
        );
    }

    #[test]
    fn what_the_window_does_not_hold_is_cut_with_a_note() {
        let plan = plan(&["-p", "5000,9000", "-n", "1", "-d", "96"], 4096).unwrap();
        assert_eq!(plan.tests.len(), 2, "two that are cut to the same are one");
        assert_eq!(plan.tests[0], Test { kind: Kind::Prompt, tokens: 4000, depth: 96 });
        assert_eq!(plan.notes[0], "pp5000 @ 96 becomes pp4000 @ 96: the window of this model ends there");
    }

    #[test]
    fn the_full_table_is_that_of_other_benches_as_far_as_the_window_goes() {
        let all = ["pp512", "pp2048", "pp8192", "tg128", "tg128 @ 4096", "tg128 @ 32768"];
        assert_eq!(names(&["--full"], 65_536), all);
        let short = plan(&["--full"], 8192).unwrap();
        assert_eq!((short.tests.len(), short.notes.len()), (5, 1), "{:?}", short.notes);
    }

    #[test]
    fn the_parts_of_the_time_add_up_to_all_of_it() {
        let ms = Duration::from_millis;
        let split = |busy, in_flight, disk, encoding| Split {
            wall: ms(100),
            busy: ms(busy),
            in_flight: ms(in_flight),
            disk: ms(disk),
            encoding: ms(encoding),
        };
        for split in [split(60, 70, 10, 5), split(0, 0, 0, 0), split(90, 80, 90, 90), split(200, 300, 1, 1)] {
            assert_eq!(split.parts().iter().map(|(_, time)| *time).sum::<Duration>(), split.wall, "{split:?}");
        }
        let parts = split(60, 70, 10, 5).parts().map(|(_, time)| time.as_millis());
        assert_eq!(parts, [60, 10, 10, 5, 15]);
    }

    #[test]
    fn what_cannot_be_measured_is_refused() {
        assert!(plan(&["--depth", "4096"], 4096).unwrap_err().to_string().contains("`--depth 4096` leaves no room"));
        assert!(plan(&["-p", "0", "-n", "0"], 4096).unwrap_err().to_string().contains("nothing to measure"));
    }

    #[test]
    fn ids_are_the_same_each_time() {
        assert_eq!(ids(100, 50), ids(100, 50));
        assert!(ids(1000, 50).iter().all(|&id| id < 50));
    }
}
