//! Owns: the table of a run: an operation a line, its share of the copy bandwidth of the same run.
//! Invariants: the copy is the first line; what it moves a second is the measure of all others.

use std::fmt::Write;

use crate::rig::Work;

/// The name of the copy's line.
pub const COPY: &str = "copy";

/// An operation as it was measured.
#[derive(Clone, Debug)]
pub struct Line {
    pub name: String,
    /// Median time of one.
    pub seconds: f64,
    pub work: Work,
}

/// All lines in Markdown.
pub fn table(device: &str, lines: &[Line]) -> String {
    let copy = lines.iter().find(|line| line.name == COPY).and_then(Line::bytes_per_second);
    let mut text = format!(
        "{device}\n\n| operation | us | MB or MFLOP | GB/s or GFLOP/s | share of copy |\n|---|--:|--:|--:|--:|\n"
    );
    for line in lines {
        let (size, rate) = match line.work {
            Work::Bytes(size) | Work::Flops(size) => (size as f64 / 1e6, size as f64 / line.seconds / 1e9),
        };
        let share =
            line.bytes_per_second().zip(copy).map_or("".into(), |(own, copy)| format!("{:.0} %", 100.0 * own / copy));
        let us = line.seconds * 1e6;
        // Writing to a string does not fail.
        let _ = writeln!(text, "| {} | {us:.2} | {size:.2} | {rate:.0} | {share} |", line.name);
    }
    text
}

impl Line {
    fn bytes_per_second(&self) -> Option<f64> {
        match self.work {
            Work::Bytes(bytes) => Some(bytes as f64 / self.seconds),
            Work::Flops(_) => None,
        }
    }
}
