//! Owns: what a run took: the lines after an answer, `--stats-json`, and where the time went (engine.md section 9).
//! Invariants: shares of the profile add up to the whole; figures name backend, device and profile.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use ss_generate::{Ask, Summary};
use ss_memory::Peak;
use ss_stream::Counters;

use crate::setup::{Ready, name};

/// Counters before a run.
pub struct Before {
    stream: Counters,
    device: ss_backend::Counters,
    rows_read: u64,
}

/// What a run took.
pub struct Report {
    /// What it came to.
    pub summary: Summary,
    model: String,
    prompt: Vec<u32>,
    seed: u64,
    stream: Counters,
    device: ss_backend::Counters,
    stages: BTreeMap<&'static str, Duration>,
    facts: ss_backend::DeviceFacts,
    arithmetic: &'static str,
    slots: u32,
    all_slots: u32,
    peak: u64,
    /// Records of the hot set that were read since the start.
    warmed: u64,
    /// Prompt tokens that were read.
    read: usize,
    /// Rows of all logits that were read.
    rows_read: u64,
}

impl Report {
    /// Counters as they stand.
    pub fn before(ready: &Ready) -> Before {
        let model = &ready.engine.model;
        Before { stream: model.store().counters(), device: model.backend().counters(), rows_read: model.rows_read() }
    }

    /// What was done since.
    ///
    /// # Errors
    /// When the system does not say how much memory was used.
    pub fn after(before: Before, ready: &Ready, ask: &Ask, summary: Summary, read: usize) -> Result<Report> {
        let model = &ready.engine.model;
        let (device, facts) = (model.backend().counters(), model.backend().facts().clone());
        // What a device shares with the processor is counted with the process.
        let own = facts.kind == ss_backend::DeviceKind::Hardware && !facts.unified;
        let outside = if own { device.peak_memory_bytes } else { 0 };
        let since = |(stage, time): (&&'static str, &Duration)| {
            (*stage, time.saturating_sub(before.device.stages.get(stage).copied().unwrap_or_default()))
        };
        Ok(Report {
            model: name(&ready.dir),
            prompt: ask.prompt.clone(),
            seed: ask.sampling.seed,
            stream: model.store().counters().since(before.stream),
            stages: device.stages.iter().map(since).collect(),
            device: ss_backend::Counters {
                dispatches: device.dispatches - before.device.dispatches,
                submissions: device.submissions - before.device.submissions,
                readbacks: device.readbacks - before.device.readbacks,
                ..device
            },
            facts,
            arithmetic: model.arithmetic().name(),
            warmed: model.store().experts.warmed(),
            slots: ready.slots,
            all_slots: ready.all_slots,
            peak: Peak::measure(outside)?.bytes(),
            summary,
            read,
            rows_read: model.rows_read() - before.rows_read,
        })
    }

    /// Tokens a second, from the number of tokens and the time; 0 when there were none.
    fn rate(tokens: usize, time: Duration) -> f64 {
        if tokens == 0 || time.is_zero() { 0.0 } else { tokens as f64 / time.as_secs_f64() }
    }

    fn prefill_rate(&self) -> f64 {
        Self::rate(self.read, self.summary.prefill)
    }

    fn decode_rate(&self) -> f64 {
        Self::rate(self.summary.decode_steps as usize, self.summary.decode)
    }

    fn hit_rate(&self) -> f64 {
        let e = &self.stream.experts;
        if e.hits + e.misses == 0 { 1.0 } else { e.hits as f64 / (e.hits + e.misses) as f64 }
    }

    /// The lines after an answer, with the profile if that is asked for.
    pub fn lines(&self, profile: bool) -> String {
        let mut lines = format!(
            "{} prompt tokens at {:.0} tok/s, {} reply tokens at {:.1} tok/s ({} backend, {} arithmetic)\n\
             {} slots for {} experts, {:.1} % hits, {} read, {}peak memory {}",
            self.read,
            self.prefill_rate(),
            self.summary.output.len(),
            self.decode_rate(),
            self.facts.backend,
            self.arithmetic,
            self.slots,
            self.all_slots,
            100.0 * self.hit_rate(),
            bytes(self.stream.bytes_read()),
            match self.stream.ram.bytes {
                0 => String::new(),
                kept => format!("{} from host memory, ", bytes(kept)),
            },
            bytes(self.peak),
        );
        let early = &self.stream.early;
        if early.issued > 0 {
            lines += &format!(
                "\n{} experts asked for early, {} of them used, {} read in vain",
                early.issued,
                early.adopted + early.joined,
                bytes(early.wasted_bytes),
            );
        }
        if profile {
            lines += &self.profile();
        }
        lines
    }

    fn profile(&self) -> String {
        let mut text = format!(
            "\n{} backend on {}, {} arithmetic: {} dispatches, {} submissions, {} readbacks in {:.1} ms",
            self.facts.backend,
            self.facts.device,
            self.arithmetic,
            self.device.dispatches,
            self.device.submissions,
            self.device.readbacks,
            milliseconds(self.total()),
        );
        for (stage, time) in self.shares() {
            let percent = 100.0 * time.as_secs_f64() / self.total().as_secs_f64().max(f64::MIN_POSITIVE);
            text += &format!("\n  {stage:<12}{:>10.1} ms{percent:>7.1} %", milliseconds(time));
        }
        text
    }

    fn total(&self) -> Duration {
        self.summary.prefill + self.summary.decode
    }

    /// Where the time went; the host has what neither the device nor the disk took. Where the device keeps no time of its
    /// own, both are one.
    fn shares(&self) -> Vec<(&'static str, Duration)> {
        let disk = self.stream.experts.waited + self.stream.ngrams.waited;
        let device: Duration = self.stages.values().sum();
        let stages = self.stages.iter().filter(|(_, time)| !time.is_zero()).map(|(stage, time)| (*stage, *time));
        let rest = if device.is_zero() { "device, host" } else { "host" };
        stages.chain([("disk_wait", disk), (rest, self.total().saturating_sub(device + disk))]).collect()
    }

    /// The report as JSON.
    pub fn json(&self) -> String {
        let (e, n, s) = (&self.stream.experts, &self.stream.ngrams, &self.summary);
        let early = &self.stream.early;
        let stages: BTreeMap<&str, f64> =
            self.shares().into_iter().map(|(stage, time)| (stage, time.as_secs_f64())).collect();
        let report: Value = json!({
            "model": self.model,
            "prompt_ids": self.prompt,
            "output_ids": s.output,
            "finish": s.finish.name(),
            "seed": self.seed,
            "prompt_tokens": self.prompt.len(),
            "output_tokens": s.output.len(),
            "prefill_seconds": s.prefill.as_secs_f64(),
            "prefill_tokens_per_second": self.prefill_rate(),
            "decode_seconds": s.decode.as_secs_f64(),
            "decode_tokens_per_second": self.decode_rate(),
            "slots": self.slots,
            "all_slots": self.all_slots,
            "expert_hits": e.hits,
            "expert_misses": e.misses,
            "expert_evictions": e.evictions,
            "hot_set_records": self.warmed,
            "hit_rate": self.hit_rate(),
            "lookahead": {
                "issued": early.issued,
                "adopted": early.adopted,
                "joined": early.joined,
                "expired": early.expired,
                "wasted_bytes": early.wasted_bytes,
            },
            "logit_rows_read": self.rows_read,
            "ngram_rows": n.rows,
            "ngram_hits": n.hits,
            "bytes_read": self.stream.bytes_read(),
            "prefill_reads": {
                "bytes": s.prefill_bytes,
                "groups": e.groups,
                "shared_groups": e.shared_groups,
                "records_spared": e.spared,
                "ngram_rows_early": n.early,
            },
            "ram_hits": self.stream.ram.hits,
            "ram_evictions": self.stream.ram.evictions,
            "ram_bytes": self.stream.ram.bytes,
            "disk_wait_seconds": (e.waited + n.waited).as_secs_f64(),
            "stage_seconds": stages,
            "dispatches": self.device.dispatches,
            "submissions": self.device.submissions,
            "readbacks": self.device.readbacks,
            "device_memory_bytes": self.device.peak_memory_bytes,
            "peak_memory_bytes": self.peak,
            "backend": self.facts.backend,
            "adapter": self.facts.device,
            "driver": self.facts.driver,
            "threads": self.facts.threads,
            "profile": self.arithmetic,
            "version": crate::VERSION,
        });
        format!("{report:#}\n")
    }
}

fn milliseconds(time: Duration) -> f64 {
    1e3 * time.as_secs_f64()
}

/// Bytes in the unit that suits them, decimal.
pub fn bytes(count: u64) -> String {
    let count = count as f64;
    match count {
        c if c >= 1e9 => format!("{:.2} GB", c / 1e9),
        c if c >= 1e6 => format!("{:.1} MB", c / 1e6),
        c => format!("{:.0} kB", c / 1e3),
    }
}
