//! Owns: the trunk on the device (engine.md, "trunk"): every weight that is neither an expert record nor an n-gram row.
//! Refuses: anything that the checkpoint has not checked against the geometry.
//! Invariants: linears lie on the device as they lie in the file; norms and other vectors are expanded to F32.

use std::sync::Arc;

use ss_backend::op::{GdnWeights, HyperWeights, QsaNorms};
use ss_backend::{Backend, Buffer, Linear};
use ss_checkpoint::{Checkpoint, LayerKind};

use crate::Result;

/// Weights of a Gated DeltaNet mixer.
pub struct GdnLayer {
    /// `[channels, hidden]`.
    pub qkv: Linear,
    /// `[values, hidden]`.
    pub z: Linear,
    /// `[value_heads, hidden]`.
    pub a: Linear,
    /// `[value_heads, hidden]`.
    pub b: Linear,
    /// Convolution, decay and norm.
    pub small: GdnWeights,
    /// `[hidden, values]`.
    pub out: Linear,
}

/// Weights of a sparse attention mixer.
pub struct QsaLayer {
    /// `[heads * 2 * head_dim, hidden]`.
    pub q: Linear,
    /// `[kv_heads * head_dim, hidden]`.
    pub k: Linear,
    /// `[kv_heads * head_dim, hidden]`.
    pub v: Linear,
    /// `[(index_heads + 1) * index_dim, hidden]`.
    pub index: Linear,
    /// Norms of queries, keys and their indexer twins.
    pub norms: QsaNorms,
    /// `[hidden, heads * head_dim]`.
    pub out: Linear,
}

/// One of the two mixers.
pub enum Mixer {
    /// Linear attention.
    Gdn(GdnLayer),
    /// Sparse attention.
    Qsa(QsaLayer),
}

/// Weights of the router and the shared expert.
pub struct MoeLayer {
    /// `[experts, hidden]`.
    pub router: Linear,
    /// `[shared_inner, hidden]`.
    pub shared_gate_proj: Linear,
    /// `[shared_inner, hidden]`.
    pub shared_up: Linear,
    /// `[hidden, shared_inner]`.
    pub shared_down: Linear,
    /// `[1, hidden]`.
    pub shared_gate: Linear,
}

/// Weights of the n-gram injection.
pub struct PleLayer {
    /// Place among the injections: picks the tables.
    pub index: usize,
    /// `[streams * hidden, ple]`.
    pub key: Linear,
    /// `[hidden, ple]`.
    pub value: Linear,
    /// `[streams * hidden]`.
    pub norm_key: Buffer,
    /// `[streams * hidden]`.
    pub norm_query: Buffer,
    /// `[streams * hidden]`.
    pub norm_conv: Buffer,
    /// `[streams * hidden, kernel]`.
    pub conv: Buffer,
}

/// Weights of one decoder layer, experts aside.
pub struct Layer {
    /// n-gram injection in front of the layer.
    pub ple: Option<PleLayer>,
    /// Hyper-connection of the mixer.
    pub attn_hc: HyperWeights,
    /// The mixer.
    pub mixer: Mixer,
    /// Hyper-connection of the experts.
    pub mlp_hc: HyperWeights,
    /// Router and shared expert.
    pub moe: MoeLayer,
}

/// Weights of the draft head, experts aside (architecture.md section 11).
pub struct DraftHead {
    /// `[hidden]`.
    pub norm_embedding: Buffer,
    /// `[streams * hidden]`.
    pub norm_hidden: Buffer,
    /// `[hidden, hidden]`.
    pub fc_embedding: Linear,
    /// `[hidden, hidden]`.
    pub fc_hidden: Linear,
    /// Its decoder layer.
    pub layer: Layer,
    /// Its final hyper-connection.
    pub mixer: HyperWeights,
}

/// The trunk.
pub struct Weights {
    /// `[vocab, hidden]`.
    pub embed: Linear,
    /// Main layers.
    pub layers: Vec<Layer>,
    /// Final hyper-connection.
    pub mixer: HyperWeights,
    /// `[vocab, hidden]`.
    pub head: Linear,
    /// The draft head, where the checkpoint has one.
    pub draft: Option<DraftHead>,
}

/// Told of every piece that has been loaded: bytes so far, bytes in all.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64);

impl Weights {
    /// Reads the trunk onto the device.
    ///
    /// # Errors
    /// When a tensor cannot be read, holds a NaN or infinite scale or norm, or does not fit the device.
    pub fn load(backend: &Arc<dyn Backend>, checkpoint: &Checkpoint, progress: Progress<'_>) -> Result<Self> {
        let mut loader = Loader { backend, checkpoint, progress, done: 0, total: trunk_bytes(checkpoint) };
        let kinds = &checkpoint.geometry().layers;
        let layers = kinds
            .iter()
            .enumerate()
            .map(|(l, kind)| loader.layer(&format!("model.layers.{l}"), *kind, ple(checkpoint, l)));
        let layers = layers.collect::<Result<Vec<_>>>();
        Ok(Weights {
            layers: layers?,
            embed: loader.linear("model.embed_tokens")?,
            mixer: loader.hyper("model.hyper_connection_mixer", false)?,
            head: loader.linear("lm_head")?,
            draft: if checkpoint.has_mtp() { Some(loader.draft()?) } else { None },
        })
    }
}

fn ple(checkpoint: &Checkpoint, layer: usize) -> Option<usize> {
    checkpoint.geometry().ple.iter().position(|&l| l == layer)
}

/// Bytes of all tensors that [`Weights::load`] reads.
pub fn trunk_bytes(checkpoint: &Checkpoint) -> u64 {
    let skipped = |name: &str| {
        name.contains(".switch_mlp.")
            || name.contains(".ngram_")
            || name.contains(".layer_multipliers")
            || name.starts_with("vision_tower.")
    };
    checkpoint.tensors().filter(|(name, _)| !skipped(name)).map(|(_, info)| info.range.bytes).sum()
}

struct Loader<'a> {
    backend: &'a Arc<dyn Backend>,
    checkpoint: &'a Checkpoint,
    progress: Progress<'a>,
    done: u64,
    total: u64,
}

impl Loader<'_> {
    fn upload(&mut self, label: &str, bytes: &[u8]) -> Result<Buffer> {
        // Uploads are whole words; a row of BF16 numbers of odd length ends in a padded one.
        let whole = bytes.len() / 4 * 4;
        let buffer = self.backend.alloc(label, bytes.len().next_multiple_of(4) as u64)?;
        self.backend.upload(&buffer, 0, &bytes[..whole])?;
        if whole < bytes.len() {
            let mut last = [0; 4];
            last[..bytes.len() - whole].copy_from_slice(&bytes[whole..]);
            self.backend.upload(&buffer, whole as u64, &last)?;
        }
        self.done += bytes.len() as u64;
        (self.progress)(self.done.min(self.total), self.total);
        Ok(buffer)
    }

    fn linear(&mut self, base: &str) -> Result<Linear> {
        let data = self.checkpoint.read_linear(base)?;
        let affine = data.matrix.format.is_affine();
        Ok(Linear {
            matrix: data.matrix,
            codes: self.upload(base, &data.codes)?,
            scales: if affine { Some(self.upload(base, &data.scales)?) } else { None },
            biases: if affine { Some(self.upload(base, &data.biases)?) } else { None },
        })
    }

    fn vector(&mut self, name: &str) -> Result<Buffer> {
        let values = self.checkpoint.read_f32(name)?;
        self.upload(name, bytemuck::cast_slice(&values))
    }

    fn hyper(&mut self, base: &str, inject: bool) -> Result<HyperWeights> {
        Ok(HyperWeights {
            norm: self.vector(&format!("{base}.hc_norm.weight"))?,
            down: self.linear(&format!("{base}.input_mix_weight_down"))?,
            up: self.linear(&format!("{base}.input_mix_weight_up"))?,
            inject: if inject { Some(self.linear(&format!("{base}.block_inject_weight"))?) } else { None },
        })
    }

    fn gdn(&mut self, base: &str) -> Result<GdnLayer> {
        Ok(GdnLayer {
            qkv: self.linear(&format!("{base}.in_proj_qkv"))?,
            z: self.linear(&format!("{base}.in_proj_z"))?,
            a: self.linear(&format!("{base}.in_proj_a"))?,
            b: self.linear(&format!("{base}.in_proj_b"))?,
            small: GdnWeights {
                conv: self.vector(&format!("{base}.conv1d.weight"))?,
                a_log: self.vector(&format!("{base}.A_log"))?,
                dt_bias: self.vector(&format!("{base}.dt_bias"))?,
                norm: self.vector(&format!("{base}.norm.weight"))?,
            },
            out: self.linear(&format!("{base}.out_proj"))?,
        })
    }

    fn qsa(&mut self, base: &str) -> Result<QsaLayer> {
        Ok(QsaLayer {
            q: self.linear(&format!("{base}.q_proj"))?,
            k: self.linear(&format!("{base}.k_proj"))?,
            v: self.linear(&format!("{base}.v_proj"))?,
            index: self.linear(&format!("{base}.indexer.index_qk_proj"))?,
            norms: QsaNorms {
                q: self.vector(&format!("{base}.q_norm.weight"))?,
                k: self.vector(&format!("{base}.k_norm.weight"))?,
                index_q: self.vector(&format!("{base}.indexer.q_layernorm.weight"))?,
                index_k: self.vector(&format!("{base}.indexer.k_layernorm.weight"))?,
            },
            out: self.linear(&format!("{base}.o_proj"))?,
        })
    }

    fn ple(&mut self, base: &str, index: usize) -> Result<PleLayer> {
        Ok(PleLayer {
            index,
            key: self.linear(&format!("{base}.key_proj"))?,
            value: self.linear(&format!("{base}.value_proj"))?,
            norm_key: self.vector(&format!("{base}.norm_key.weight"))?,
            norm_query: self.vector(&format!("{base}.norm_query.weight"))?,
            norm_conv: self.vector(&format!("{base}.norm_conv.weight"))?,
            conv: self.vector(&format!("{base}.conv1d.weight"))?,
        })
    }

    fn moe(&mut self, base: &str) -> Result<MoeLayer> {
        Ok(MoeLayer {
            router: self.linear(&format!("{base}.gate"))?,
            shared_gate_proj: self.linear(&format!("{base}.shared_expert.gate_proj"))?,
            shared_up: self.linear(&format!("{base}.shared_expert.up_proj"))?,
            shared_down: self.linear(&format!("{base}.shared_expert.down_proj"))?,
            shared_gate: self.linear(&format!("{base}.shared_expert_gate"))?,
        })
    }

    fn layer(&mut self, base: &str, kind: LayerKind, ple: Option<usize>) -> Result<Layer> {
        Ok(Layer {
            ple: match ple {
                Some(index) => Some(self.ple(&format!("{base}.ple"), index)?),
                None => None,
            },
            attn_hc: self.hyper(&format!("{base}.attn_hyper_connection"), true)?,
            mixer: match kind {
                LayerKind::Gdn => Mixer::Gdn(self.gdn(&format!("{base}.linear_attn"))?),
                LayerKind::Qsa => Mixer::Qsa(self.qsa(&format!("{base}.self_attn"))?),
            },
            mlp_hc: self.hyper(&format!("{base}.mlp_hyper_connection"), true)?,
            moe: self.moe(&format!("{base}.mlp"))?,
        })
    }

    fn draft(&mut self) -> Result<DraftHead> {
        Ok(DraftHead {
            norm_embedding: self.vector("mtp.pre_fc_norm_embedding.weight")?,
            norm_hidden: self.vector("mtp.pre_fc_norm_hidden.weight")?,
            fc_embedding: self.linear("mtp.fc_embedding")?,
            fc_hidden: self.linear("mtp.fc_hidden")?,
            layer: self.layer("mtp.layers.0", LayerKind::Qsa, None)?,
            mixer: self.hyper("mtp.hyper_connection_mixer", false)?,
        })
    }
}
