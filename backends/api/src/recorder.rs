//! Owns: the list of operations on its way to the device, and where in the model each one stands.
//! Refuses: execution. A recorder is plain data: a GPU encodes from it, the reference backend walks it, a test counts it.
//! Invariants: operations run in the order recorded.

use std::fmt;

use crate::op::*;
use crate::{Arithmetic, Op};

/// Which part of the model an operation belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scope {
    /// Main layer, from 0.
    Layer(u32),
    /// The MTP draft head.
    Mtp,
    /// Before the first layer or after the last.
    Whole,
}

/// Which step of the layer an operation belongs to; the name of its row in the profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stage {
    /// Embedding rows to streams.
    Embed,
    /// n-gram injection.
    Ple,
    /// Hyper-connection read before attention.
    AttnHc,
    /// Gated DeltaNet.
    Gdn,
    /// Sparse attention.
    Qsa,
    /// Hyper-connection read before the experts.
    MlpHc,
    /// What the layer ahead will choose.
    Forecast,
    /// Router, experts and their sum.
    Moe,
    /// Last hyper-connection read.
    Mixer,
    /// Output head.
    Head,
    /// Bias, penalties, mask, and the likeliest ids.
    Choice,
    /// Fusion in front of the MTP layer.
    Fuse,
    /// Copies and replays of sequence state.
    State,
}

impl Stage {
    /// Name in the profile and in goldens.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Embed => "embed",
            Stage::Ple => "ple",
            Stage::AttnHc => "attn_hc",
            Stage::Gdn => "gdn",
            Stage::Qsa => "qsa",
            Stage::MlpHc => "mlp_hc",
            Stage::Forecast => "forecast",
            Stage::Moe => "moe",
            Stage::Mixer => "mixer",
            Stage::Head => "head",
            Stage::Choice => "choice",
            Stage::Fuse => "fuse",
            Stage::State => "state",
        }
    }
}

/// Where in the model an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// Layer or head.
    pub scope: Scope,
    /// Step.
    pub stage: Stage,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::Layer(layer) => write!(f, "L{layer}.{}", self.stage.name()),
            Scope::Mtp => write!(f, "mtp.{}", self.stage.name()),
            Scope::Whole => f.write_str(self.stage.name()),
        }
    }
}

/// Operations that are handed to a device.
#[derive(Clone, Copy, Debug)]
pub struct Work<'a> {
    /// The profile of all of them.
    pub arithmetic: Arithmetic,
    /// The operations, each with its place.
    pub steps: &'a [(Site, Op)],
}

/// Operations in the order they are to run.
#[derive(Debug)]
pub struct Recorder {
    arithmetic: Arithmetic,
    site: Site,
    steps: Vec<(Site, Op)>,
}

impl Recorder {
    /// An empty list under one arithmetic profile.
    pub fn new(arithmetic: Arithmetic) -> Self {
        Recorder { arithmetic, site: Site { scope: Scope::Whole, stage: Stage::State }, steps: Vec::new() }
    }

    /// The profile of all operations in this list.
    pub fn arithmetic(&self) -> Arithmetic {
        self.arithmetic
    }

    /// The operations so far, each with its place.
    pub fn steps(&self) -> &[(Site, Op)] {
        &self.steps
    }

    /// Everything recorded.
    pub fn all(&self) -> Work<'_> {
        self.part(0, self.steps.len())
    }

    /// The operations from `first` up to `end`, none of those that are not there.
    pub fn part(&self, first: usize, end: usize) -> Work<'_> {
        Work { arithmetic: self.arithmetic, steps: self.steps.get(first..end).unwrap_or_default() }
    }

    /// Whether nothing has been recorded.
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// Forgets what was recorded, not where in the model the next operations stand.
    pub fn clear(&mut self) {
        self.steps.clear();
    }

    /// Says where in the model the next operations stand.
    pub fn at(&mut self, scope: Scope, stage: Stage) -> &mut Self {
        self.site = Site { scope, stage };
        self
    }

    /// An operation as it is.
    pub fn push(&mut self, op: Op) {
        self.steps.push((self.site, op));
    }

    /// Embedding rows.
    pub fn embed(&mut self, op: Embed) {
        self.push(Op::Embed(op));
    }

    /// n-gram rows to keys and values.
    pub fn ple_project(&mut self, op: PleProject) {
        self.push(Op::PleProject(op));
    }

    /// Gate, convolution and sum of the n-gram injection.
    pub fn ple_mix(&mut self, op: PleMix) {
        self.push(Op::PleMix(op));
    }

    /// Streams to one row.
    pub fn hc_read(&mut self, op: HcRead) {
        self.push(Op::HcRead(op));
    }

    /// Output projection and hyper-connection write.
    pub fn project_write(&mut self, op: ProjectWrite) {
        self.push(Op::ProjectWrite(op));
    }

    /// Projections of Gated DeltaNet.
    pub fn gdn_project(&mut self, op: GdnProject) {
        self.push(Op::GdnProject(op));
    }

    /// Convolution, recurrence, norm and gate of Gated DeltaNet.
    pub fn gdn_mix(&mut self, op: GdnMix) {
        self.push(Op::GdnMix(op));
    }

    /// The recurrence over recorded rows.
    pub fn gdn_replay(&mut self, op: GdnReplay) {
        self.push(Op::GdnReplay(op));
    }

    /// A convolution window after recorded rows.
    pub fn window(&mut self, op: Window) {
        self.push(Op::Window(op));
    }

    /// Projections of sparse attention and its indexer.
    pub fn qsa_project(&mut self, op: QsaProject) {
        self.push(Op::QsaProject(op));
    }

    /// Norms, rotation, cache append and block pooling.
    pub fn qsa_append(&mut self, op: QsaAppend) {
        self.push(Op::QsaAppend(op));
    }

    /// Block scores and the kept blocks.
    pub fn qsa_select(&mut self, op: QsaSelect) {
        self.push(Op::QsaSelect(op));
    }

    /// Attention over the kept blocks.
    pub fn qsa_attend(&mut self, op: QsaAttend) {
        self.push(Op::QsaAttend(op));
    }

    /// Router.
    pub fn route(&mut self, op: Route) {
        self.push(Op::Route(op));
    }

    /// Gate and up projections of experts, SwiGLU.
    pub fn experts_in(&mut self, op: ExpertsIn) {
        self.push(Op::ExpertsIn(op));
    }

    /// Down projections of experts.
    pub fn experts_out(&mut self, op: ExpertsOut) {
        self.push(Op::ExpertsOut(op));
    }

    /// Sum of the experts' rows and hyper-connection write.
    pub fn combine(&mut self, op: Combine) {
        self.push(Op::Combine(op));
    }

    /// Fusion in front of the MTP layer.
    pub fn mtp_fuse(&mut self, op: MtpFuse) {
        self.push(Op::MtpFuse(op));
    }

    /// Output head.
    pub fn head(&mut self, op: Head) {
        self.push(Op::Head(op));
    }

    /// Rules on the logits and the largest of them.
    pub fn top(&mut self, op: Top) {
        self.push(Op::Top(op));
    }

    /// Copy between buffers.
    pub fn copy(&mut self, op: Copy) {
        self.push(Op::Copy(op));
    }
}
