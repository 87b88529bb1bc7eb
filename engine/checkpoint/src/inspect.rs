//! Owns: the report that `ss inspect` prints: geometry, where the bytes are, what is missing, whether the published totals
//! are met.
//! Refuses: nothing; what cannot be opened never gets here.
//! Invariants: made from headers alone; every tensor is counted in exactly one group.

use std::fmt;

use serde::Serialize;

use crate::check::shown_format;
use crate::checkpoint::{Checkpoint, VISION_PREFIX};
use crate::config::present;
use crate::error::shown;
use crate::geometry::{GateKind, Geometry, LayerKind};
use crate::norms::NormConvention;
use crate::pack::PackInfo;
use crate::released::{RELEASED, Totals};
use crate::sidecar;

/// A kind of tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Group {
    /// Token embedding.
    Embedding,
    /// Output head.
    Head,
    /// Gated DeltaNet layers.
    Gdn,
    /// Sparse-attention layers.
    Qsa,
    /// Hyper-connections and the final mixer.
    HyperConnections,
    /// Shared experts and their gates.
    SharedExperts,
    /// Routers.
    Routers,
    /// N-gram injection, without its table.
    Ple,
    /// Rows of n-gram tables.
    NgramRows,
    /// Routed experts.
    Experts,
    /// The MTP layer, with its experts.
    Mtp,
    /// The vision tower.
    Vision,
    /// Tensors that no part of the model uses.
    Unused,
}

impl Group {
    const ALL: [(Group, &'static str); 13] = [
        (Group::Embedding, "embedding"),
        (Group::Head, "output head"),
        (Group::Gdn, "gated delta layers"),
        (Group::Qsa, "sparse-attention layers"),
        (Group::HyperConnections, "hyper-connections"),
        (Group::SharedExperts, "shared experts"),
        (Group::Routers, "routers"),
        (Group::Ple, "n-gram injection"),
        (Group::NgramRows, "n-gram rows"),
        (Group::Experts, "routed experts"),
        (Group::Mtp, "MTP layer"),
        (Group::Vision, "vision tower"),
        (Group::Unused, "unused"),
    ];

    /// The group of a tensor, by the parts of its canonical name.
    fn of(name: &str, used: bool) -> Group {
        let has = |part: &str| name.contains(part);
        match name {
            _ if name.starts_with(VISION_PREFIX) => Group::Vision,
            _ if !used => Group::Unused,
            _ if name.starts_with("mtp.") => Group::Mtp,
            _ if name.starts_with("model.embed_tokens.") => Group::Embedding,
            _ if name.starts_with("lm_head.") => Group::Head,
            _ if has("hyper_connection") => Group::HyperConnections,
            _ if has(".linear_attn.") => Group::Gdn,
            _ if has(".self_attn.") => Group::Qsa,
            _ if has(".mlp.shared_expert") => Group::SharedExperts,
            _ if has(".mlp.gate.") => Group::Routers,
            _ if has(".mlp.switch_mlp.") || has(".mlp.experts.") => Group::Experts,
            _ if has(".ngram_embedding.") => Group::NgramRows,
            _ => Group::Ple,
        }
    }

    /// Whether it is held in memory while the model runs.
    fn is_resident(self) -> bool {
        !matches!(self, Group::NgramRows | Group::Experts | Group::Mtp | Group::Vision | Group::Unused)
    }
}

/// A line of the table of groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GroupLine {
    /// Which.
    pub group: Group,
    /// Tensors.
    pub tensors: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A line of the table of files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FileLine {
    /// File name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Tensors that are read from it.
    pub tensors: u64,
}

/// What there is to say about a checkpoint.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// The model directory.
    pub path: String,
    /// Dimensions.
    pub geometry: Geometry,
    /// What centred norms hold in the files.
    pub norms: NormConvention,
    /// Bytes of one expert record.
    pub record_bytes: u64,
    /// Formats of gate, up and down projection.
    pub record_formats: [String; 3],
    /// Weight files.
    pub files: Vec<FileLine>,
    /// Packs that records are read from.
    pub packs: Vec<PackInfo>,
    /// Bytes by group, empty groups left out.
    pub groups: Vec<GroupLine>,
    /// Sums over everything but the MTP layer.
    pub totals: Totals,
    /// Bytes of the MTP layer.
    pub mtp_bytes: u64,
    /// Files and parts that are not there.
    pub missing: Vec<String>,
    /// Tensors that nothing uses, vision aside.
    pub unused: Vec<String>,
    /// What is odd but harmless.
    pub warnings: Vec<String>,
    /// Whether the sums are the published ones; None if this is another geometry than the released.
    pub released_totals_met: Option<bool>,
}

impl Report {
    /// Looks at an opened checkpoint.
    pub fn of(checkpoint: &Checkpoint) -> Report {
        let geometry = checkpoint.geometry().clone();
        let groups = groups(checkpoint);
        let totals = totals(&groups);
        let layout = checkpoint.expert_layout();
        let is_released = geometry.is_released();
        let unused = checkpoint.tensors().filter(|(name, _)| Group::of(name, checkpoint.uses(name)) == Group::Unused);
        Report {
            path: checkpoint.dir().display().to_string(),
            norms: checkpoint.norm_convention(),
            record_bytes: layout.bytes,
            record_formats: [layout.gate, layout.up, layout.down].map(|part| shown_format(part.matrix.format)),
            files: files(checkpoint),
            packs: checkpoint.packs().cloned().collect(),
            mtp_bytes: bytes_of(&groups, Group::Mtp),
            missing: missing(checkpoint),
            unused: unused.map(|(_, info)| shown(&info.stored)).collect(),
            warnings: checkpoint.warnings().to_vec(),
            released_totals_met: is_released.then_some(totals == RELEASED),
            geometry,
            groups,
            totals,
        }
    }
}

fn groups(checkpoint: &Checkpoint) -> Vec<GroupLine> {
    let line = |(group, _): (Group, &str)| {
        let tensors = checkpoint.tensors().filter(|(name, _)| Group::of(name, checkpoint.uses(name)) == group);
        let empty = GroupLine { group, tensors: 0, bytes: 0 };
        tensors.fold(empty, |sum, (_, info)| GroupLine {
            tensors: sum.tensors + 1,
            bytes: sum.bytes + info.range.bytes,
            ..sum
        })
    };
    Group::ALL.into_iter().map(line).filter(|line| line.tensors > 0).collect()
}

fn bytes_of(groups: &[GroupLine], group: Group) -> u64 {
    groups.iter().filter(|line| line.group == group).map(|line| line.bytes).sum()
}

fn totals(groups: &[GroupLine]) -> Totals {
    let main = || groups.iter().filter(|line| line.group != Group::Mtp);
    Totals {
        tensors: main().map(|line| line.tensors).sum(),
        resident: main().filter(|line| line.group.is_resident()).map(|line| line.bytes).sum(),
        experts: bytes_of(groups, Group::Experts),
        ngram: bytes_of(groups, Group::NgramRows),
        vision: bytes_of(groups, Group::Vision),
        total: main().map(|line| line.bytes).sum(),
    }
}

fn files(checkpoint: &Checkpoint) -> Vec<FileLine> {
    let line = |(place, file): (usize, &crate::file::PositionedFile)| FileLine {
        name: file.path().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned()),
        bytes: file.len(),
        tensors: checkpoint.tensors().filter(|(_, info)| info.range.file.index() == place).count() as u64,
    };
    let weights = checkpoint.files().len() - checkpoint.packs().count();
    checkpoint.files().iter().enumerate().take(weights).map(line).collect()
}

fn missing(checkpoint: &Checkpoint) -> Vec<String> {
    let file = |name: &str| present(&checkpoint.dir().join(name));
    let parts = [
        (checkpoint.has_mtp(), "mtp.safetensors (the MTP layer, for drafts)"),
        (checkpoint.has_vision(), "vision_tower tensors (for images)"),
        (file(sidecar::TOKENIZER), "tokenizer.json (for text)"),
        (checkpoint.chat_template().is_ok(), "chat_template.jinja (for chat)"),
        (file(sidecar::GENERATION), "generation_config.json (sampling defaults and stop ids)"),
    ];
    parts.into_iter().filter(|(there, _)| !there).map(|(_, part)| part.to_owned()).collect()
}

/// 1234567 as 1,234,567.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.path)?;
        self.show_geometry(f)?;
        self.show_bytes(f)?;
        writeln!(f, "\nfiles")?;
        for file in &self.files {
            writeln!(f, "  {:<40} {:>18} bytes {:>6} tensors", shown(&file.name), grouped(file.bytes), file.tensors)?;
        }
        for pack in &self.packs {
            let PackInfo { name, bytes, records, .. } = pack;
            let only = if pack.reclaimed { ", the only copy" } else { "" };
            writeln!(f, "  {name:<40} {:>18} bytes {:>6} records{only}", grouped(*bytes), grouped(*records))?;
        }
        if self.packs.is_empty() {
            writeln!(f, "  not packed")?;
        }
        for part in &self.missing {
            writeln!(f, "missing: {part}")?;
        }
        for name in &self.unused {
            writeln!(f, "unused: {name}")?;
        }
        for warning in &self.warnings {
            writeln!(f, "warning: {warning}")?;
        }
        self.show_released(f)
    }
}

impl Report {
    fn show_geometry(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let g = &self.geometry;
        let (gdn, qsa) = (g.count(LayerKind::Gdn), g.count(LayerKind::Qsa));
        let gate = match g.gate {
            GateKind::Sigmoid => "sigmoid",
            GateKind::Silu => "silu",
        };
        writeln!(f, "\ngeometry")?;
        writeln!(
            f,
            "  width          {} in {} streams (low rank {}), vocabulary {}",
            g.hidden, g.streams, g.lowrank, g.vocab
        )?;
        writeln!(f, "  layers         {} ({gdn} gated delta, {qsa} sparse attention)", g.layers.len())?;
        writeln!(
            f,
            "  gated delta    {} key heads of {}, {} value heads of {}, {} taps, {gate} gate",
            g.gdn_key_heads, g.gdn_key_dim, g.gdn_value_heads, g.gdn_value_dim, g.gdn_conv
        )?;
        writeln!(
            f,
            "  attention      {} heads of {}, {} key heads, {} rotated",
            g.heads, g.head_dim, g.kv_heads, g.rotary
        )?;
        writeln!(
            f,
            "  indexer        {} heads of {}, {} blocks of {} tokens kept",
            g.index_heads, g.index_dim, g.index_topk, g.index_block
        )?;
        writeln!(
            f,
            "  experts        {} of width {}, {} a token, shared {}",
            g.experts, g.inner, g.choices, g.shared_inner
        )?;
        writeln!(
            f,
            "  n-gram         layers {:?}, {} heads of {}, order {}, {} shards",
            g.ple,
            g.ngram_heads(),
            g.ngram_row_width(),
            g.ngram.order,
            g.ngram.shards
        )?;
        writeln!(f, "  positions      {}", g.max_positions)?;
        let [gate, up, down] = &self.record_formats;
        let same = gate == up && up == down;
        let formats = if same { gate.clone() } else { format!("gate {gate}, up {up}, down {down}") };
        writeln!(f, "  expert record  {} bytes: {formats}", grouped(self.record_bytes))?;
        let norms = match self.norms {
            NormConvention::Folded => "1 + w, as the engine wants them",
            NormConvention::Raw => "w; one is added on reading",
        };
        writeln!(f, "  norms          {norms}")
    }

    fn show_bytes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:<26} {:>8} {:>18}", "where the bytes are", "tensors", "bytes")?;
        for (group, name) in Group::ALL {
            if let Some(line) = self.groups.iter().find(|line| line.group == group) {
                writeln!(f, "  {name:<24} {:>8} {:>18}", line.tensors, grouped(line.bytes))?;
            }
        }
        writeln!(f, "  {:<24} {:>8} {:>18}", "resident", "", grouped(self.totals.resident))?;
        let tensors = self.totals.tensors;
        writeln!(f, "  {:<24} {tensors:>8} {:>18}", "all but the MTP layer", grouped(self.totals.total))
    }

    fn show_released(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.released_totals_met {
            None => return writeln!(f, "released totals: do not apply, this is another geometry"),
            Some(true) => writeln!(f, "released totals: met")?,
            Some(false) => writeln!(f, "released totals: not met")?,
        }
        let (found, published) = (self.totals, RELEASED);
        let figures = [
            ("tensors", found.tensors, published.tensors),
            ("resident", found.resident, published.resident),
            ("routed experts", found.experts, published.experts),
            ("n-gram rows", found.ngram, published.ngram),
            ("vision tower", found.vision, published.vision),
            ("total", found.total, published.total),
        ];
        for (name, found, published) in figures {
            let verdict = if found == published { "as published" } else { "published:" };
            let other = if found == published { String::new() } else { format!(" {}", grouped(published)) };
            writeln!(f, "  {name:<24} {:>27} {verdict}{other}", grouped(found))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_by_thousands() {
        assert_eq!([0, 999, 1000, 103_769_745_912].map(grouped), ["0", "999", "1,000", "103,769,745,912"]);
    }

    #[test]
    fn each_group_is_known_by_name() {
        let used = |name| Group::of(name, true);
        assert_eq!(used("model.layers.1.mlp_hyper_connection.hc_norm.weight"), Group::HyperConnections);
        assert_eq!(used("model.layers.1.mlp.shared_expert_gate.weight"), Group::SharedExperts);
        assert_eq!(used("model.layers.1.mlp.gate.weight"), Group::Routers);
        assert_eq!(used("model.layers.1.mlp.switch_mlp.gate_proj.scales"), Group::Experts);
        assert_eq!(used("model.layers.1.ple.ple_embedding.ngram_embedding.shard_7.weight"), Group::NgramRows);
        assert_eq!(used("model.layers.1.ple.ple_embedding.ngram_heads_offsets"), Group::Ple);
        assert_eq!(Group::of("model.layers.1.mlp.gate.bias", false), Group::Unused);
    }
}
