//! Owns: what an operation leaves in its buffers, read back under the names that golden tensors have.
//! Refuses: what only exists inside an operation; [`INSIDE`] lists it.
//! Invariants: names, shapes and order are those of the reference backend's observer.

use ss_backend::op::{GdnMix, GdnProject, HcRead, QsaAppend, QsaSelect, Route};
use ss_backend::{Backend, Buffer, Form, Op, Result, Rows, Scalar, Scope, Site};
use ss_reference::TapData;

use crate::rig::Taps;

/// Golden tensors that no operation writes out: on the way through a fused kernel they never reach memory. What follows
/// from them does, and is compared; the outputs of whole mixers are compared operation by operation.
pub const INSIDE: [&str; 23] = [
    "attn_hc.norm",
    "attn_hc.lowrank",
    "mlp_hc.norm",
    "mlp_hc.lowrank",
    "mixer.norm",
    "mixer.lowrank",
    "gdn.conv_out",
    "gdn.q_l2",
    "gdn.k_l2",
    "gdn.v",
    "gdn.decay",
    "gdn.beta",
    "gdn.core",
    "gdn.out",
    "qsa.attn",
    "qsa.out",
    "moe.shared_gate",
    "moe.routed",
    "moe.out",
    "ple.score",
    "ple.gate",
    "ple.conv_out",
    "ple.out",
];

/// The score of a block that its query does not see.
const UNSEEN: f32 = -1.0;

/// Reads what one operation leaves.
pub struct Tapper<'a> {
    /// The device.
    pub backend: &'a dyn Backend,
    /// Where in the model the operation stands.
    pub site: Site,
    /// Where the values go.
    pub taps: &'a Taps,
}

impl Tapper<'_> {
    /// What the operation will change, before it does.
    pub fn before(&self, op: &Op) -> Result<()> {
        match op {
            Op::GdnMix(op) => {
                let state = op.state.from.as_ref().unwrap_or(&op.state.state);
                self.tell("state_in", state, op.shape.state())
            }
            _ => Ok(()),
        }
    }

    /// What the operation left.
    pub fn after(&self, op: &Op) -> Result<()> {
        match op {
            Op::Embed(op) => self.rows("streams", &op.out, op.rows, op.copies * op.table.matrix.cols),
            Op::PleProject(op) => {
                self.rows("embed", &op.e, op.rows, op.key.matrix.cols)?;
                self.rows("value", &op.values, op.rows, op.value.matrix.rows)
            }
            Op::PleMix(op) => {
                let width = op.shape.streams.width();
                self.rows("conv_in", &op.inputs, op.rows, width)?;
                self.layer("after_ple", &op.out, op.rows, width)
            }
            Op::HcRead(op) => self.hc_read(op),
            Op::ProjectWrite(op) => self.layer("after_attn", &op.out, op.rows, op.streams.width()),
            Op::GdnProject(op) => self.gdn_project(op),
            Op::GdnMix(op) => self.gdn_mix(op),
            Op::QsaAppend(op) => self.qsa_append(op),
            Op::QsaSelect(op) => self.qsa_select(op),
            Op::Route(op) => self.route(op),
            Op::ExpertsOut(op) => {
                let hidden = op.pool.layout().down.matrix.rows;
                self.rows("expert_out", &op.out, op.rows, op.choices * hidden)?;
                op.shared.as_ref().map_or(Ok(()), |s| self.rows("shared", &s.out, op.rows, s.down.matrix.rows))
            }
            Op::Combine(op) => self.layer("hidden", &op.out, op.rows, op.streams.width()),
            Op::MtpFuse(op) => self.layer("fused", &op.out, op.rows, op.streams.width()),
            Op::Head(op) => self.rows("logits", &op.logits, op.rows, op.weight.matrix.rows),
            Op::GdnReplay(_)
            | Op::Window(_)
            | Op::QsaProject(_)
            | Op::QsaAttend(_)
            | Op::ExpertsIn(_)
            | Op::Top(_)
            | Op::Copy(_) => Ok(()),
        }
    }

    fn hc_read(&self, op: &HcRead) -> Result<()> {
        // The read of a generated row applies the norm to products of the streams: neither is whole in memory.
        if op.rows.form == Form::Prompt {
            self.rows("norm", &op.normed, op.rows, op.streams.width())?;
            self.rows("lowrank", &op.lowrank, op.rows, op.weights.down.matrix.rows)?;
        }
        self.rows("mixed", &op.u, op.rows, op.streams.hidden)?;
        match op.weights.inject {
            Some(_) => self.rows("inject", &op.inject, op.rows, op.streams.count),
            None => Ok(()),
        }
    }

    fn gdn_project(&self, op: &GdnProject) -> Result<()> {
        self.rows("qkv", &op.qkv_out, op.rows, op.qkv.matrix.rows)?;
        self.rows("z", &op.z_out, op.rows, op.z.matrix.rows)?;
        let heads = op.a.matrix.rows;
        let ab = self.read(&op.ab_out, 0, op.rows.count * 2 * heads)?;
        let of = |half: usize| ab.chunks_exact(heads as usize).skip(half).step_by(2).flatten().copied().collect();
        self.put("a", of(0));
        self.put("b", of(1));
        Ok(())
    }

    fn gdn_mix(&self, op: &GdnMix) -> Result<()> {
        self.tell("state_out", &op.state.state, op.shape.state())?;
        self.rows("gated", &op.out, op.rows, op.shape.values())
    }

    fn qsa_append(&self, op: &QsaAppend) -> Result<()> {
        let (shape, rows, first) = (op.shape, op.rows.count, op.first);
        let (kv, index) = (shape.kv_heads * shape.head_dim, shape.index_dim);
        self.rows("q", &op.q_out, op.rows, shape.heads * shape.head_dim)?;
        let both = self.read(&op.q, 0, rows * shape.heads * 2 * shape.head_dim)?;
        self.put("gate", both.chunks_exact(shape.head_dim as usize).skip(1).step_by(2).flatten().copied().collect());
        self.rows("index_q", &op.index_q_out, op.rows, shape.index_heads * index)?;
        let cache = |name, buffer, begin: u32, end: u32| -> Result<()> {
            self.put(name, self.cells(buffer, op.cache.scalar, begin, end - begin)?);
            Ok(())
        };
        cache("k", &op.cache.k, first * kv, (first + rows) * kv)?;
        cache("v", &op.cache.v, first * kv, (first + rows) * kv)?;
        cache("index_raw_k", &op.cache.raw, first * index, (first + rows) * index)?;
        let blocks = [first / shape.block, (first + rows) / shape.block];
        cache("index_pooled", &op.cache.pooled, blocks[0] * index, blocks[1] * index)
    }

    /// Scores of blocks that a query does not see are whatever was there: they are told as the golden has them.
    fn qsa_select(&self, op: &QsaSelect) -> Result<()> {
        let (block, topk) = (op.shape.block, op.shape.topk);
        let all = (op.first + op.rows.count) / block;
        let mut scores = self.read(&op.scores, 0, op.slice_rows * all)?;
        if all > 0 {
            for (row, scores) in (op.first + op.slice + 1..).zip(scores.chunks_exact_mut(all as usize)) {
                scores[(row / block) as usize..].fill(UNSEEN);
            }
        }
        self.put("index_scores", scores);
        self.ids("index_blocks", &op.blocks, op.slice * topk, op.slice_rows * topk)
    }

    fn route(&self, op: &Route) -> Result<()> {
        self.rows("router_logits", &op.logits, op.rows, op.weight.matrix.rows)?;
        self.ids("router_idx", &op.experts, 0, op.rows.count * op.choices)?;
        self.rows("router_w", &op.weights, op.rows, op.choices)
    }

    fn rows(&self, name: &str, buffer: &Buffer, rows: Rows, width: u32) -> Result<()> {
        self.tell(name, buffer, rows.count * width)
    }

    fn tell(&self, name: &str, buffer: &Buffer, numbers: u32) -> Result<()> {
        self.put(name, self.read(buffer, 0, numbers)?);
        Ok(())
    }

    fn put(&self, name: &str, values: Vec<f32>) {
        self.taps.put(&format!("{}.{name}", self.site), TapData::F32(&values));
    }

    /// Under the name of the layer.
    fn layer(&self, name: &str, buffer: &Buffer, rows: Rows, width: u32) -> Result<()> {
        let name = match self.site.scope {
            Scope::Layer(layer) => format!("L{layer}.{name}"),
            Scope::Mtp => format!("mtp.{name}"),
            Scope::Whole => name.to_owned(),
        };
        self.taps.put(&name, TapData::F32(&self.read(buffer, 0, rows.count * width)?));
        Ok(())
    }

    fn ids(&self, name: &str, buffer: &Buffer, first: u32, count: u32) -> Result<()> {
        let mut ids = vec![0i32; count as usize];
        self.backend.read(buffer, 4 * u64::from(first), bytemuck::cast_slice_mut(&mut ids))?;
        self.taps.put(&format!("{}.{name}", self.site), TapData::I32(&ids));
        Ok(())
    }

    fn read(&self, buffer: &Buffer, first: u32, numbers: u32) -> Result<Vec<f32>> {
        let mut values = vec![0f32; numbers as usize];
        self.backend.read(buffer, 4 * u64::from(first), bytemuck::cast_slice_mut(&mut values))?;
        Ok(values)
    }

    /// Numbers of a cache, which may be stored rounded.
    fn cells(&self, buffer: &Buffer, scalar: Scalar, first: u32, numbers: u32) -> Result<Vec<f32>> {
        if scalar == Scalar::F32 {
            return self.read(buffer, first, numbers);
        }
        let mut stored = vec![half::bf16::ZERO; numbers as usize];
        self.backend.read(buffer, 2 * u64::from(first), bytemuck::cast_slice_mut(&mut stored))?;
        Ok(stored.into_iter().map(half::bf16::to_f32).collect())
    }
}
