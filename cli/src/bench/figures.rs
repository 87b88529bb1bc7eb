//! Owns: the figures of a bench as a table and as JSON.
//! Invariants: a figure stands beside model, device, arithmetic and pool; a ratio is to the first pool of the same test.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};
use ss_backend::{Arithmetic, DeviceFacts, KernelTime};
use ss_memory::Peak;

use super::measure::{Kind, Measured, Test};
use crate::devices::facts_json;
use crate::report::bytes;

/// What holds for all rows.
pub struct Head {
    /// Name of the model.
    pub model: String,
    /// What it ran on.
    pub facts: DeviceFacts,
    /// Profile.
    pub arithmetic: Arithmetic,
    /// Experts of all main layers.
    pub all_slots: u32,
    /// Rows of a prompt pass.
    pub prefill_pass: u32,
    /// Most prompt tokens that share a read of experts.
    pub read_group: u32,
    /// Counted runs of a test.
    pub repetitions: u32,
    /// Whether each row says where its time went.
    pub profile: bool,
}

/// All rows so far.
pub struct Figures {
    head: Head,
    rows: Vec<Row>,
}

struct Row {
    slots: u32,
    test: Test,
    measured: Measured,
    /// Tokens a second of each run.
    rates: Vec<f64>,
    /// To the first pool of this test.
    ratio: f64,
}

impl Head {
    /// The lines above the table.
    pub fn text(&self) -> String {
        let Head { model, facts, arithmetic, all_slots, prefill_pass, repetitions, .. } = self;
        format!(
            "{model} on {}, {} backend, {arithmetic} arithmetic, {all_slots} experts, passes of {prefill_pass} rows; mean \
             and deviation of {repetitions} runs\n\n\
             {:>6}  {:<16}  {:>20}  {:>8}  {:>7}  {:>9}  {:>12}  {:>10}  {:>12}",
            facts.device,
            facts.backend,
            "slots",
            "test",
            "tokens/s",
            "vs first",
            "hits",
            "read/tok",
            "dispatch/tok",
            "submit/tok",
            "readback/tok"
        )
    }
}

impl Figures {
    /// None yet.
    pub fn new(head: Head) -> Self {
        Figures { head, rows: Vec::new() }
    }

    /// Takes a test's figures and gives its line; counts are a token's.
    pub fn add(&mut self, slots: u32, test: Test, measured: Measured) -> String {
        let rate = |time: &Duration| f64::from(test.tokens) / time.as_secs_f64().max(f64::MIN_POSITIVE);
        let rates: Vec<f64> = measured.times.iter().map(rate).collect();
        let first = self.rows.iter().find(|row| row.test == test).map_or(mean(&rates), |row| mean(&row.rates));
        let row = Row { slots, test, ratio: mean(&rates) / first, measured, rates };
        let mut text = row.text();
        if self.head.profile {
            text += &row.profile();
        }
        self.rows.push(row);
        text
    }

    /// Everything.
    ///
    /// # Errors
    /// When the system does not say how much memory was used.
    pub fn json(&self) -> Result<Value> {
        let rows: Vec<Value> = self.rows.iter().map(Row::json).collect();
        Ok(json!({
            "model": self.head.model,
            "device": facts_json(&self.head.facts),
            "arithmetic": self.head.arithmetic.name(),
            "all_slots": self.head.all_slots,
            "prefill_pass": self.head.prefill_pass,
            "read_group": self.head.read_group,
            "repetitions": self.head.repetitions,
            "rows": rows,
            "peak_process_bytes": Peak::measure(0)?.bytes(),
            "version": crate::VERSION,
        }))
    }
}

impl Row {
    /// A count of all runs, for one token.
    fn a_token(&self, count: u64) -> f64 {
        count as f64 / (f64::from(self.test.tokens) * self.rates.len().max(1) as f64)
    }

    fn hit_rate(&self) -> f64 {
        if self.measured.asked == 0 { 1.0 } else { self.measured.hits as f64 / self.measured.asked as f64 }
    }

    /// A time of all runs, for one token.
    fn milliseconds(&self, time: Duration) -> f64 {
        1e3 * time.as_secs_f64() / (f64::from(self.test.tokens) * self.rates.len().max(1) as f64)
    }

    /// Where the time went, as parts of 1.
    fn shares(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let wall = self.measured.split.wall.as_secs_f64().max(f64::MIN_POSITIVE);
        self.measured.split.parts().into_iter().map(move |(name, time)| (name, time.as_secs_f64() / wall))
    }

    fn profile(&self) -> String {
        let parts = self.shares().map(|(name, share)| format!("{name} {:.1} %", 100.0 * share));
        let milliseconds = self.milliseconds(self.measured.split.wall);
        let parts = parts.collect::<Vec<_>>().join(", ");
        format!("\n        {milliseconds:.3} ms a token: {parts}{}", self.kernel_table())
    }

    /// Kernels that ran, the longest first.
    fn kernels(&self) -> Vec<(&str, KernelTime)> {
        let all = self.measured.kernels.iter().filter(|(_, kernel)| kernel.calls > 0);
        let mut all: Vec<_> = all.map(|(label, kernel)| (&**label, *kernel)).collect();
        all.sort_by_key(|(_, kernel)| std::cmp::Reverse(kernel.time));
        all
    }

    /// Lines for the kernels, where they were timed.
    fn kernel_table(&self) -> String {
        let kernels = self.kernels();
        if kernels.is_empty() {
            return String::new();
        }
        let all: Duration = kernels.iter().map(|(_, kernel)| kernel.time).sum();
        let head = format!(
            "\n        {:<32}  {:>9}  {:>9}  {:>9}  {:>7}",
            "kernel", "calls/tok", "us/call", "us/tok", "share"
        );
        kernels.iter().fold(head, |text, (label, kernel)| {
            let (calls, us) = (self.a_token(kernel.calls), 1e3 * self.milliseconds(kernel.time));
            let share = 100.0 * kernel.time.as_secs_f64() / all.as_secs_f64().max(f64::MIN_POSITIVE);
            format!("{text}\n        {label:<32}  {calls:>9.2}  {:>9.2}  {us:>9.2}  {share:>5.1} %", us / calls)
        })
    }

    /// Null where kernels were not timed.
    fn kernels_json(&self) -> Value {
        if self.measured.kernels.is_empty() {
            return Value::Null;
        }
        let one = |(label, kernel): (&str, KernelTime)| {
            json!({
                "kernel": label,
                "calls_per_token": self.a_token(kernel.calls),
                "microseconds_per_token": 1e3 * self.milliseconds(kernel.time),
            })
        };
        self.kernels().into_iter().map(one).collect()
    }

    fn text(&self) -> String {
        let m = &self.measured;
        format!(
            "{:>6}  {:<16}  {:>10.1} ± {:>7.1}  {:>8.3}  {:>5.1} %  {:>9}  {:>12.1}  {:>10.2}  {:>12.2}",
            self.slots,
            self.test.name(),
            mean(&self.rates),
            deviation(&self.rates),
            self.ratio,
            100.0 * self.hit_rate(),
            bytes(self.a_token(m.bytes_read) as u64),
            self.a_token(m.dispatches),
            self.a_token(m.submissions),
            self.a_token(m.readbacks),
        )
    }

    fn json(&self) -> Value {
        let m = &self.measured;
        json!({
            "slots": self.slots,
            "test": self.test.name(),
            "kind": match self.test.kind {
                Kind::Prompt => "prompt",
                Kind::Reply => "reply",
            },
            "tokens": self.test.tokens,
            "depth": self.test.depth,
            "tokens_per_second": mean(&self.rates),
            "deviation": deviation(&self.rates),
            "runs": self.rates,
            "ratio_to_first": self.ratio,
            "hit_rate": self.hit_rate(),
            "bytes_read_per_token": self.a_token(m.bytes_read),
            "records_spared_per_token": self.a_token(m.spared),
            "ram_bytes_per_token": self.a_token(m.ram_bytes),
            "dispatches_per_token": self.a_token(m.dispatches),
            "submissions_per_token": self.a_token(m.submissions),
            "readbacks_per_token": self.a_token(m.readbacks),
            "read_early_used_per_token": self.a_token(m.early.0),
            "read_early_unused_per_token": self.a_token(m.early.1),
            "milliseconds_per_token": self.milliseconds(m.split.wall),
            "kernels": self.kernels_json(),
            "time_shares": self.shares().collect::<BTreeMap<_, _>>(),
        })
    }
}

fn mean(numbers: &[f64]) -> f64 {
    numbers.iter().sum::<f64>() / numbers.len().max(1) as f64
}

/// The standard deviation of a sample; none of a single number.
fn deviation(numbers: &[f64]) -> f64 {
    let (mean, others) = (mean(numbers), numbers.len().saturating_sub(1).max(1) as f64);
    (numbers.iter().map(|number| (number - mean).powi(2)).sum::<f64>() / others).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_those_of_a_sample() {
        assert_eq!(mean(&[1.0, 2.0, 3.0, 4.0]), 2.5);
        assert!((deviation(&[1.0, 2.0, 3.0, 4.0]) - 1.2909944).abs() < 1e-6);
        assert_eq!(deviation(&[7.0]), 0.0);
    }

    fn head() -> Head {
        Head {
            model: "m".into(),
            facts: crate::device::tests::adapter("Card", ss_backend::DeviceKind::Hardware).device,
            arithmetic: Arithmetic::Fast,
            all_slots: 512,
            prefill_pass: 512,
            read_group: 8192,
            repetitions: 2,
            profile: true,
        }
    }

    #[test]
    fn kernels_that_ran_are_listed_the_longest_first_by_token() {
        let mut measured = Measured { times: vec![Duration::from_millis(1); 2], ..Measured::default() };
        for (label, calls, us) in [("short", 400, 2_000), ("long 8x4", 200, 6_000), ("idle", 0, 0)] {
            let kernel = KernelTime { calls, time: Duration::from_micros(us) };
            measured.kernels.insert(label.into(), kernel);
        }
        let mut figures = Figures::new(head());
        let text = figures.add(1, Test { kind: Kind::Reply, tokens: 100, depth: 0 }, measured);
        let lines: Vec<Vec<&str>> = text.lines().skip(3).map(|line| line.split_whitespace().collect()).collect();
        assert_eq!(lines[0], ["long", "8x4", "1.00", "30.00", "30.00", "75.0", "%"]);
        assert_eq!(lines[1], ["short", "2.00", "5.00", "10.00", "25.0", "%"]);
        assert_eq!(lines.len(), 2, "what did not run is left out: {text}");
        let kernels = &figures.json().unwrap()["rows"][0]["kernels"];
        assert_eq!((&kernels[0]["kernel"], &kernels[1]["calls_per_token"]), (&"long 8x4".into(), &2.0.into()));
    }

    #[test]
    fn ratios_are_to_the_first_pool_of_the_same_test() {
        let mut figures = Figures::new(head());
        let (reply, prompt) = (Kind::Reply, Kind::Prompt);
        let mut add = |slots, kind, milliseconds: u64| {
            let times = vec![Duration::from_millis(milliseconds); 2];
            let measured = Measured { times, bytes_read: 4_000_000, hits: 3, asked: 4, ..Measured::default() };
            figures.add(slots, Test { kind, tokens: 100, depth: 0 }, measured)
        };
        let line = add(512, reply, 100);
        for part in ["   512  tg100 ", "1000.0 ±     0.0", " 1.000 ", " 75.0 %", " 20 kB"] {
            assert!(line.contains(part), "{part}: {line}");
        }
        assert!(add(512, prompt, 50).contains(" 1.000 "));
        assert!(add(128, reply, 200).contains(" 0.500 "));
        let json = figures.json().unwrap();
        assert_eq!(json["rows"][2]["ratio_to_first"], 0.5);
        assert_eq!(json["rows"][2]["bytes_read_per_token"], 20_000.0);
    }
}
