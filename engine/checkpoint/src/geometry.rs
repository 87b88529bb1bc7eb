//! Owns: the model's dimensions, taken from `config.json` (architecture.md section 1).
//! Refuses: other architectures, and whatever lies outside the envelope of checkpoint.md section 8, by field name.
//! Invariants: every product of two dimensions fits a u32; a [`Geometry`] that exists is one the engine supports.

use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use crate::config::{Fields, shown_value};
use crate::error::{Error, Result};

/// The two kinds of token mixer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerKind {
    /// Gated DeltaNet, linear attention (architecture.md section 6).
    Gdn,
    /// Sparse attention with a block indexer (architecture.md section 7).
    Qsa,
}

/// The activation of the GDN output gate (`output_gate_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GateKind {
    /// The released model's, and what a configuration without the field means.
    Sigmoid,
    /// x * sigmoid(x).
    Silu,
}

/// The n-gram hash and its table (architecture.md section 9.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NgramGeometry {
    /// Longest n-gram, 2 to 4 ids (`ngram_size`); also the dilation of the PLE convolution.
    pub order: u32,
    /// Hash heads for each length from 2 to `order`.
    pub heads_per_order: u32,
    /// Table sizes are the primes from here on.
    pub vocab_base: u64,
    /// The rows of all heads are padded to a multiple of this.
    pub divisible_by: u64,
    /// Equal parts in which the table is stored.
    pub shards: u32,
    /// Seed of the multipliers.
    pub seed: u64,
    /// The id that ends a segment, and stands for ids before the start: `text_config.eos_token_id`, its first if a list.
    pub boundary: u32,
}

/// The dimensions of a model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Geometry {
    /// Width of one residual stream.
    pub hidden: u32,
    /// Rows of the embedding and of the head.
    pub vocab: u32,
    /// The main layers, first to last; the MTP layer is not among them.
    pub layers: Vec<LayerKind>,
    /// Added to the mean square in every norm of the text model.
    pub eps: f32,
    /// Residual streams (`hc_count`).
    pub streams: u32,
    /// Inner width of the stream mixers (`hc_lowrank`).
    pub lowrank: u32,
    /// Attention query heads.
    pub heads: u32,
    /// Attention key and value heads.
    pub kv_heads: u32,
    /// Width of an attention head.
    pub head_dim: u32,
    /// Leading dimensions of a head that are rotated; even.
    pub rotary: u32,
    /// Base of the rotary frequencies.
    pub rope_theta: f64,
    /// Rotary frequencies that follow the t, h and w position; they add up to `rotary / 2`.
    pub mrope_section: [u32; 3],
    /// GDN key heads.
    pub gdn_key_heads: u32,
    /// GDN value heads; a multiple of the key heads.
    pub gdn_value_heads: u32,
    /// Width of a GDN key head.
    pub gdn_key_dim: u32,
    /// Width of a GDN value head.
    pub gdn_value_dim: u32,
    /// Taps of the GDN convolution.
    pub gdn_conv: u32,
    /// Activation of the GDN output gate.
    pub gate: GateKind,
    /// Indexer query heads (there is one key head).
    pub index_heads: u32,
    /// Width of an indexer head.
    pub index_dim: u32,
    /// Tokens that share one pooled indexer key (`indexer_compress_ratio`).
    pub index_block: u32,
    /// Blocks that a query keeps: `indexer_budget / indexer_compress_ratio`.
    pub index_topk: u32,
    /// Routed experts in a layer.
    pub experts: u32,
    /// Routed experts that a token uses.
    pub choices: u32,
    /// Inner width of a routed expert.
    pub inner: u32,
    /// Inner width of the shared expert.
    pub shared_inner: u32,
    /// Zero-based layers that carry an n-gram injection; a place in this list is a *PLE index*.
    pub ple: Vec<usize>,
    /// Width of the concatenated n-gram rows.
    pub ple_dim: u32,
    /// Taps of the PLE convolution.
    pub ple_conv: u32,
    /// The n-gram hash.
    pub ngram: NgramGeometry,
    /// Longest context that the model was made for.
    pub max_positions: u32,
    /// Whether the configuration allows an MTP layer; `Checkpoint::has_mtp` says whether one is there.
    pub has_mtp: bool,
}

/// Bounds of checkpoint.md section 8, and bounds of our own where it names none: wide enough for any sensible relative of
/// the model, narrow enough that no product overflows.
mod envelope {
    use std::ops::RangeInclusive;

    pub const HIDDEN: RangeInclusive<u32> = 32..=8192;
    pub const VOCAB: RangeInclusive<u32> = 2..=1 << 20;
    pub const STREAMS: RangeInclusive<u32> = 2..=8;
    pub const HEAD: RangeInclusive<u32> = 32..=256;
    pub const BUDGET: RangeInclusive<u32> = 1..=4096;
    pub const EXPERTS: RangeInclusive<u32> = 1..=1024;
    pub const CHOICES: RangeInclusive<u32> = 1..=16;
    pub const KERNEL: RangeInclusive<u32> = 2..=4;
    pub const ORDER: RangeInclusive<u32> = 2..=4;
    /// Every head, input and output width is a multiple of this: the smallest quantisation group.
    pub const UNIT: u32 = 32;

    pub const LAYERS: RangeInclusive<u32> = 1..=256;
    pub const HEADS: RangeInclusive<u32> = 1..=256;
    pub const INDEX_HEADS: RangeInclusive<u32> = 1..=64;
    pub const WIDTH: RangeInclusive<u32> = 1..=1 << 16;
    pub const NGRAM_HEADS: RangeInclusive<u32> = 1..=32;
    pub const TABLE: RangeInclusive<u64> = 2..=1 << 32;
    pub const SHARDS: RangeInclusive<u32> = 1..=1024;
}

/// `seed` where the configuration has none: the class default, confirmed by the stored multipliers.
const DEFAULT_SEED: u64 = 1234;
/// `full_attention_interval` where the configuration has neither it nor `layer_types`.
const DEFAULT_INTERVAL: u64 = 4;

impl Geometry {
    /// Reads a `config.json`; `path` is for messages. Errors name the field, what is supported and what was found.
    pub fn from_config(config: &Value, path: &Path) -> Result<Geometry> {
        let root = Fields::root(config, path)?;
        let text = text_config(&root)?;
        refuse_variants(&root, &text)?;
        let layers = layer_kinds(&text)?;
        let vocab = text.need("vocab_size", envelope::VOCAB)?;
        let (heads, kv_heads) = multiple(&text, "num_attention_heads", "num_key_value_heads")?;
        let (gdn_value_heads, gdn_key_heads) = multiple(&text, "linear_num_value_heads", "linear_num_key_heads")?;
        let head_dim = head(&text, "head_dim")?;
        let index_dim = head(&text, "indexer_head_dim")?;
        let (rotary, rope_theta, mrope_section) = rotary(&text, head_dim.min(index_dim), head_dim)?;
        let (index_block, index_topk) = blocks(&text)?;
        let experts = text.need("num_experts", envelope::EXPERTS)?;
        let ple = ple_layers(&text, &layers)?;
        let ngram = ngram(&text, vocab)?;
        let ple_dim = ple_width(&text, &ngram)?;
        Ok(Geometry {
            hidden: unit(&text, "hidden_size", envelope::HIDDEN)?,
            vocab,
            eps: eps(&text)?,
            streams: text.need("hc_count", envelope::STREAMS)?,
            lowrank: text.need("hc_lowrank", envelope::WIDTH)?,
            heads,
            kv_heads,
            head_dim,
            rotary,
            rope_theta,
            mrope_section,
            gdn_key_heads,
            gdn_value_heads,
            gdn_key_dim: head(&text, "linear_key_head_dim")?,
            gdn_value_dim: head(&text, "linear_value_head_dim")?,
            gdn_conv: text.need("linear_conv_kernel_dim", envelope::KERNEL)?,
            gate: gate(&text)?,
            index_heads: text.need("indexer_n_heads", envelope::INDEX_HEADS)?,
            index_dim,
            index_block,
            index_topk,
            experts,
            choices: choices(&text, experts)?,
            inner: text.need("moe_intermediate_size", envelope::WIDTH)?,
            shared_inner: text.need("shared_expert_intermediate_size", envelope::WIDTH)?,
            ple_conv: text.need("ple_conv_kernel_size", envelope::KERNEL)?,
            ple,
            ple_dim,
            ngram,
            max_positions: text.need("max_position_embeddings", 1..=1 << 30)?,
            has_mtp: text.number("mtp_num_hidden_layers", 0..=1)? != Some(0),
            layers,
        })
    }

    /// Width of all residual streams side by side.
    pub fn stream_width(&self) -> u32 {
        self.streams * self.hidden
    }

    /// Width of all GDN keys (or queries).
    pub fn gdn_key_width(&self) -> u32 {
        self.gdn_key_heads * self.gdn_key_dim
    }

    /// Width of all GDN values.
    pub fn gdn_value_width(&self) -> u32 {
        self.gdn_value_heads * self.gdn_value_dim
    }

    /// Channels of the GDN convolution: queries, keys, values.
    pub fn gdn_conv_width(&self) -> u32 {
        2 * self.gdn_key_width() + self.gdn_value_width()
    }

    /// Width of all attention queries.
    pub fn query_width(&self) -> u32 {
        self.heads * self.head_dim
    }

    /// Width of all attention keys (or values).
    pub fn kv_width(&self) -> u32 {
        self.kv_heads * self.head_dim
    }

    /// Width of the indexer projection: query heads, then one key head.
    pub fn index_width(&self) -> u32 {
        (self.index_heads + 1) * self.index_dim
    }

    /// Hash heads of an n-gram injection: rows that one token reads.
    pub fn ngram_heads(&self) -> u32 {
        self.ngram.heads()
    }

    /// Width of one n-gram row.
    pub fn ngram_row_width(&self) -> u32 {
        self.ple_dim / self.ngram_heads()
    }

    /// Rows between two taps of the PLE convolution.
    pub fn ple_dilation(&self) -> u32 {
        self.ngram.order
    }

    /// How many main layers are of a kind.
    pub fn count(&self, kind: LayerKind) -> usize {
        self.layers.iter().filter(|&&k| k == kind).count()
    }

    /// The layer number under which the MTP layer goes: one past the main layers.
    pub fn mtp_layer(&self) -> usize {
        self.layers.len()
    }

    /// The kind of a main layer, or of the MTP layer.
    pub fn layer_kind(&self, layer: usize) -> LayerKind {
        self.layers.get(layer).copied().unwrap_or(LayerKind::Qsa)
    }
}

impl NgramGeometry {
    /// Hash heads over all lengths.
    pub fn heads(&self) -> u32 {
        (self.order - 1) * self.heads_per_order
    }
}

fn text_config<'a>(root: &Fields<'a>) -> Result<Fields<'a>> {
    const WHOLE: &str = "qwen4_exp";
    const TEXT: &str = "qwen4_exp_text";
    let wrong = |found: Option<&Value>| Error::WrongModel {
        path: root.path().to_owned(),
        found: found.map_or_else(|| "absent".into(), shown_value),
    };
    let found = root.get("model_type");
    let text = match found.and_then(Value::as_str) {
        Some(WHOLE) => root.object("text_config")?.ok_or_else(|| root.wrong("text_config", "an object"))?,
        // A configuration of the text model alone has its fields outermost.
        Some(TEXT) => return Ok(root.clone()),
        _ => return Err(wrong(found)),
    };
    match text.get("model_type") {
        Some(kind) if kind.as_str() != Some(TEXT) => Err(wrong(Some(kind))),
        _ => Ok(text),
    }
}

/// Variants that the family's code knows and this engine does not compute.
fn refuse_variants(root: &Fields, text: &Fields) -> Result<()> {
    root.fixed("tie_word_embeddings", &json!(false))?;
    text.fixed("tie_word_embeddings", &json!(false))?;
    text.fixed("attention_bias", &json!(false))?;
    text.fixed("hidden_act", &json!("silu"))?;
    text.fixed("norm_topk_prob", &json!(true))?;
    text.fixed("indexer_kv_heads", &json!(1))?;
    text.fixed("mtp_use_dedicated_embeddings", &json!(false))
}

fn layer_kinds(text: &Fields) -> Result<Vec<LayerKind>> {
    let count = text.need("num_hidden_layers", envelope::LAYERS)?;
    let Some(types) = text.get("layer_types") else {
        let interval = text.number("full_attention_interval", 1..=u64::from(count) + 1)?.unwrap_or(DEFAULT_INTERVAL);
        let kind = |layer| if (layer + 1) % interval == 0 { LayerKind::Qsa } else { LayerKind::Gdn };
        return Ok((0..u64::from(count)).map(kind).collect());
    };
    let expected = || format!("a list of {count} times \"linear_attention\" or \"full_attention\"");
    let types = types.as_array().ok_or_else(|| text.wrong("layer_types", expected()))?;
    if types.len() != count as usize {
        return Err(text.wrong("layer_types", expected()));
    }
    let kind = |(layer, value): (usize, &Value)| match value.as_str() {
        Some("linear_attention") => Ok(LayerKind::Gdn),
        Some("full_attention") => Ok(LayerKind::Qsa),
        _ => Err(Error::Field {
            path: text.path().to_owned(),
            field: format!("text_config.layer_types[{layer}]"),
            expected: "\"linear_attention\" or \"full_attention\"".into(),
            found: shown_value(value),
        }),
    };
    types.iter().enumerate().map(kind).collect()
}

/// A width that is a multiple of the smallest group.
fn unit(text: &Fields, name: &str, range: std::ops::RangeInclusive<u32>) -> Result<u32> {
    let expected = format!("a multiple of {} from {} to {}", envelope::UNIT, range.start(), range.end());
    let width = text.need(name, range)?;
    if width % envelope::UNIT == 0 { Ok(width) } else { Err(text.wrong(name, expected)) }
}

fn head(text: &Fields, name: &str) -> Result<u32> {
    unit(text, name, envelope::HEAD)
}

/// Two numbers of heads, the first a multiple of the second.
fn multiple(text: &Fields, many: &str, few: &str) -> Result<(u32, u32)> {
    let fewer = text.need(few, envelope::HEADS)?;
    let more = text.need(many, envelope::HEADS)?;
    if more % fewer == 0 { Ok((more, fewer)) } else { Err(text.wrong(many, format!("a multiple of {few} ({fewer})"))) }
}

fn eps(text: &Fields) -> Result<f32> {
    match text.real("rms_norm_eps")? {
        Some(eps) if eps > 0.0 && eps < 1.0 && eps as f32 > 0.0 => Ok(eps as f32),
        _ => Err(text.wrong("rms_norm_eps", "a number between 0 and 1")),
    }
}

fn gate(text: &Fields) -> Result<GateKind> {
    match text.text("output_gate_type")? {
        None | Some("sigmoid") => Ok(GateKind::Sigmoid),
        Some("silu") => Ok(GateKind::Silu),
        Some(_) => Err(text.wrong("output_gate_type", "\"sigmoid\" or \"silu\"")),
    }
}

/// Rotated dimensions, base, sections.
fn rotary(text: &Fields, most: u32, head_dim: u32) -> Result<(u32, f64, [u32; 3])> {
    let inner = text.object("rope_parameters")?;
    let rope = inner.as_ref().unwrap_or(text);
    rope.fixed("rope_type", &json!("default"))?;
    rope.fixed("mrope_interleaved", &json!(true))?;
    let theta = match rope.real("rope_theta")? {
        Some(theta) if theta > 1.0 => theta,
        _ => return Err(rope.wrong("rope_theta", "a number above 1")),
    };
    let factor = match rope.real("partial_rotary_factor")? {
        Some(factor) => Some(factor),
        None => text.real("partial_rotary_factor")?,
    };
    let dims = factor.map(|factor| factor * f64::from(head_dim));
    let Some(dims) = dims.filter(|d| *d >= 2.0 && *d <= f64::from(most) && d % 2.0 == 0.0) else {
        let expected =
            format!("a fraction of head_dim {head_dim} that is an even number of dimensions from 2 to {most}");
        return Err(rope.wrong("partial_rotary_factor", expected));
    };
    let dims = dims as u32;
    // One rotary table serves the main layers and the MTP layer.
    if let Some(mtp) = text.object("mtp")?
        && mtp.real("rope_theta")?.is_some_and(|other| other != theta)
    {
        return Err(mtp.wrong("rope_theta", format!("the same as rope_parameters.rope_theta ({theta})")));
    }
    Ok((dims, theta, mrope_section(rope, dims / 2)?))
}

fn mrope_section(rope: &Fields, half: u32) -> Result<[u32; 3]> {
    let Some(value) = rope.get("mrope_section") else {
        // An even split, t first: what every known configuration has.
        let (h, w) = ((half + 1) / 3, half / 3);
        return Ok([half - h - w, h, w]);
    };
    let numbers: Option<Vec<u64>> = value.as_array().and_then(|list| list.iter().map(Value::as_u64).collect());
    match numbers.as_deref() {
        // Each bounded first, so that the sum cannot overflow.
        Some(&[t, h, w]) if t.max(h).max(w) <= u64::from(half) && t + h + w == u64::from(half) => {
            Ok([t as u32, h as u32, w as u32])
        }
        _ => Err(rope.wrong("mrope_section", format!("three whole numbers that add up to {half}"))),
    }
}

/// Tokens in an indexer block, and blocks kept.
fn blocks(text: &Fields) -> Result<(u32, u32)> {
    let block = text.need("indexer_compress_ratio", 1..=64)?;
    if block != 4 && block != 8 {
        return Err(text.wrong("indexer_compress_ratio", "4 or 8"));
    }
    let budget = text.need("indexer_budget", envelope::BUDGET)?;
    if budget < block {
        return Err(text.wrong("indexer_budget", format!("at least one block of {block} tokens")));
    }
    Ok((block, budget / block))
}

fn choices(text: &Fields, experts: u32) -> Result<u32> {
    let choices = text.need("num_experts_per_tok", envelope::CHOICES)?;
    if choices > experts {
        return Err(text.wrong("num_experts_per_tok", format!("at most num_experts ({experts})")));
    }
    Ok(choices)
}

/// Zero-based PLE layers; the file counts from one.
fn ple_layers(text: &Fields, layers: &[LayerKind]) -> Result<Vec<usize>> {
    let expected = "a list of distinct linear-attention layers, counted from 1";
    let Some(value) = text.get("ple_layer_ids") else { return Ok(Vec::new()) };
    let list = value.as_array().ok_or_else(|| text.wrong("ple_layer_ids", expected))?;
    let mut out: Vec<usize> = Vec::new();
    for id in list {
        let layer = id.as_u64().and_then(|id| usize::try_from(id).ok()).and_then(|id| id.checked_sub(1));
        let layer = layer.filter(|&l| layers.get(l) == Some(&LayerKind::Gdn) && !out.contains(&l));
        out.push(layer.ok_or_else(|| text.wrong("ple_layer_ids", expected))?);
    }
    Ok(out)
}

fn ngram(text: &Fields, vocab: u32) -> Result<NgramGeometry> {
    let wide = |name: &str| match text.number(name, envelope::TABLE)? {
        Some(number) => Ok(number),
        None => Err(text.wrong(name, "a whole number")),
    };
    Ok(NgramGeometry {
        order: text.need("ngram_size", envelope::ORDER)?,
        heads_per_order: text.need("heads_per_ngram", envelope::NGRAM_HEADS)?,
        vocab_base: wide("ngram_vocab_size_base")?,
        divisible_by: match text.number("make_ngram_vocab_size_divisible_by", 1..=*envelope::TABLE.end())? {
            Some(number) => number,
            None => return Err(text.wrong("make_ngram_vocab_size_divisible_by", "a whole number")),
        },
        shards: text.need("split_ngram_parts", envelope::SHARDS)?,
        seed: text.number("seed", 0..=u64::MAX)?.unwrap_or(DEFAULT_SEED),
        boundary: boundary(text, vocab)?,
    })
}

fn boundary(text: &Fields, vocab: u32) -> Result<u32> {
    let value = text.get("eos_token_id");
    let first = value.and_then(|v| v.as_array().map_or(Some(v), |list| list.first()));
    let id = first.and_then(Value::as_u64).filter(|&id| id < u64::from(vocab));
    match id {
        Some(id) => Ok(id as u32),
        None => Err(text
            .wrong("eos_token_id", format!("a token id below vocab_size ({vocab}), or a list that begins with one"))),
    }
}

fn ple_width(text: &Fields, ngram: &NgramGeometry) -> Result<u32> {
    let width = text.need("ple_embed_dim", envelope::WIDTH)?;
    if width % ngram.heads() != 0 {
        return Err(text.wrong("ple_embed_dim", format!("a multiple of the {} n-gram heads", ngram.heads())));
    }
    Ok(width)
}
