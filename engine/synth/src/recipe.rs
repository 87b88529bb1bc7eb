//! Owns: what each tensor is filled with: spreads under which activations stay finite and varied through all layers.
//! Refuses: nothing; a weight that no rule names keeps the size of what goes through it.
//! Invariants: only names and shapes decide. Read back by the loader: norms lie about one, as the folded convention has
//! them (architecture.md section 3).

use ss_checkpoint::Dtype;
use ss_checkpoint::imitation::Tensor;

use crate::random::Stream;
use crate::skew::Skew;

/// What a tensor is filled with.
#[derive(Clone, Debug)]
pub(crate) enum Fill {
    /// Nothing: a hole, which reads as zeros.
    Hole,
    /// Given bytes.
    Bytes(Vec<u8>),
    /// Random 4-bit codes.
    Codes(Stream),
    /// BF16 numbers drawn from a table.
    Drawn { stream: Stream, table: Box<[u16; 16]> },
    /// BF16 numbers spread evenly around a centre.
    Even { stream: Stream, centre: f32, reach: f32 },
    /// BF16 rows of so many columns, each spread evenly around zero by a reach of its own.
    Rows { stream: Stream, cols: u64, reaches: Vec<f32> },
}

/// What decides how the tensors of a model are filled.
pub(crate) struct Recipe {
    pub seed: u64,
    /// Whether n-gram rows are left as holes.
    pub sparse_ngrams: bool,
    /// The uses of a layer's experts.
    pub skew: Skew,
}

/// How large the weights of a linear are.
#[derive(Clone, Copy)]
enum Size {
    /// This standard deviation.
    Own(f32),
    /// So much larger a result than what goes in, in root mean square.
    Gain(f32),
}

/// Root mean square of what a hyper-connection hands to its block: normed streams behind gates about one half.
const BLOCK_INPUT: f32 = 0.5;
/// A linear after a hyper-connection read, whose result is about one.
const TO_ONE: Size = Size::Gain(1.0 / BLOCK_INPUT);

/// Sizes by the end of a base name. A block adds about a third of an embedding row to the streams, so that tokens still
/// differ after a hundred of them.
const SIZES: [(&str, Size); 23] = [
    ("model.embed_tokens", Size::Own(1.0)),
    // Logits that differ by a few units: no token is certain, none is alone.
    ("lm_head", Size::Gain(2.5 / BLOCK_INPUT)),
    // Divided by the streams before the activation (architecture.md section 4).
    (".input_mix_weight_down", Size::Gain(4.0)),
    (".input_mix_weight_up", Size::Gain(1.0)),
    (".block_inject_weight", Size::Gain(2.0)),
    (".in_proj_qkv", TO_ONE),
    (".in_proj_z", TO_ONE),
    (".in_proj_b", TO_ONE),
    (".in_proj_a", Size::Gain(1.0)),
    (".linear_attn.out_proj", Size::Gain(0.6)),
    // Well inside the straight part of SiLU: its bend gives keys and values a mean that all tokens share.
    (".linear_attn.conv1d", Size::Gain(0.5)),
    (".ple.conv1d", Size::Gain(0.5)),
    (".q_proj", TO_ONE),
    (".k_proj", TO_ONE),
    (".v_proj", TO_ONE),
    (".index_qk_proj", TO_ONE),
    (".shared_expert_gate", TO_ONE),
    (".gate_proj", TO_ONE),
    (".up_proj", TO_ONE),
    (".value_proj", Size::Gain(0.5)),
    ("mtp.fc_embedding", Size::Gain(0.7)),
    ("mtp.fc_hidden", Size::Gain(0.7)),
    ("vision_tower.pos_embed", Size::Own(0.1)),
];
/// Standard deviation of n-gram rows that are written.
const NGRAM_ROW: Size = Size::Own(1.0);
/// Norms lie about one.
const NORM_REACH: f32 = 0.1;
/// Biases, which only the vision tower has.
const BIAS_REACH: f32 = 0.02;
/// Logarithms of the decay rates: 1 to 16, as such layers are initialised.
const DECAY: (f32, f32) = (0.0, 2.77);
/// Where softplus gives time steps of 0.001 to 0.1: states that remember between one token and a thousand.
const TIME_STEP: (f32, f32) = (-6.9, -2.25);

impl Recipe {
    /// What a tensor is filled with; `cols` is the width of its rows, codes unpacked.
    pub(crate) fn fill(&self, tensor: &Tensor, cols: u64) -> Fill {
        let name = tensor.name.strip_prefix("language_model.").unwrap_or(&tensor.name);
        if let Some(content) = tensor.content.as_ref().filter(|_| tensor.dtype == Dtype::I64) {
            return Fill::Bytes(content.clone());
        }
        let is_ngram = name.contains(".ngram_embedding.");
        if is_ngram && self.sparse_ngrams {
            return Fill::Hole;
        }
        let (base, part) = name.rsplit_once('.').unwrap_or((name, ""));
        let size = if is_ngram { NGRAM_ROW } else { size(base) };
        let stream = |name: &str| Stream::new(self.seed, name);
        match part {
            _ if tensor.dtype == Dtype::U32 => Fill::Codes(stream(name)),
            // One stream for both, so that each group's numbers lie around zero.
            "scales" => Fill::Drawn { stream: stream(base), table: Box::new(scales(size.deviation(cols))) },
            "biases" => Fill::Drawn { stream: stream(base), table: Box::new(biases(size.deviation(cols))) },
            "A_log" => between(stream(name), DECAY),
            "dt_bias" => between(stream(name), TIME_STEP),
            "bias" => Fill::Even { stream: stream(name), centre: 0.0, reach: BIAS_REACH },
            _ if is_norm(tensor) => Fill::Even { stream: stream(name), centre: 1.0, reach: NORM_REACH },
            _ if base.ends_with(".mlp.gate") => self.router(stream(name), stream(base), cols),
            _ => Fill::Even { stream: stream(name), centre: 0.0, reach: reach(size.deviation(cols)) },
        }
    }

    fn router(&self, stream: Stream, order: Stream, cols: u64) -> Fill {
        let of_row = |spread: f64| reach(Size::Gain(spread as f32 / BLOCK_INPUT).deviation(cols));
        let reaches = self.skew.spreads_by_expert(order).into_iter().map(of_row).collect();
        Fill::Rows { stream, cols: cols.max(1), reaches }
    }
}

impl Size {
    /// Standard deviation of weights over so many inputs.
    fn deviation(self, cols: u64) -> f32 {
        match self {
            Size::Own(deviation) => deviation,
            Size::Gain(gain) => gain / (cols.max(1) as f32).sqrt(),
        }
    }
}

fn size(base: &str) -> Size {
    SIZES.iter().find(|(ending, _)| base.ends_with(ending)).map_or(Size::Gain(1.0), |(_, size)| *size)
}

fn is_norm(tensor: &Tensor) -> bool {
    tensor.shape.len() == 1 && tensor.name.contains("norm")
}

/// How far an even spread reaches, for a standard deviation.
fn reach(deviation: f32) -> f32 {
    3f32.sqrt() * deviation
}

fn between(stream: Stream, (low, high): (f32, f32)) -> Fill {
    Fill::Even { stream, centre: (low + high) / 2.0, reach: (high - low) / 2.0 }
}

/// Scales of groups whose weights have this standard deviation, a fifth up and down. Four bits of mantissa each: times 7.5
/// they are BF16 still, so that the sixteen codes lie around zero exactly.
fn scales(deviation: f32) -> [u16; 16] {
    /// Standard deviation of a code drawn evenly from 0 to 15: the root of (16² - 1) / 12.
    const CODE: f32 = 4.609_772;
    /// Bits of an F32 below four of mantissa, one of which is not stored.
    const DROPPED: u32 = 20;
    std::array::from_fn(|place| {
        let scale = deviation / CODE * (0.8 + 0.4 * place as f32 / 15.0);
        let kept = (scale.to_bits() + (1 << (DROPPED - 1))) >> DROPPED << DROPPED;
        half::bf16::from_f32(f32::from_bits(kept)).to_bits()
    })
}

/// The offsets that belong to [`scales`].
fn biases(deviation: f32) -> [u16; 16] {
    scales(deviation).map(|scale| half::bf16::from_f32(-7.5 * half::bf16::from_bits(scale).to_f32()).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_of_a_group_lie_around_zero_exactly() {
        for deviation in [1.0, 0.02, 0.0371, 3.9e-3] {
            let (scales, biases) = (scales(deviation), biases(deviation));
            for (scale, bias) in scales.into_iter().zip(biases) {
                let (scale, bias) = (half::bf16::from_bits(scale).to_f32(), half::bf16::from_bits(bias).to_f32());
                assert_eq!(7.5 * scale + bias, 0.0);
                assert!((4.609_772 * scale / deviation - 1.0).abs() < 0.27);
            }
        }
    }

    #[test]
    fn sizes_follow_from_the_end_of_a_name() {
        let deviation = |base: &str| size(base).deviation(100);
        assert_eq!(deviation("model.layers.3.mlp.switch_mlp.up_proj"), 0.2);
        assert_eq!(deviation("model.layers.3.mlp.switch_mlp.down_proj"), 0.1);
        assert_eq!(deviation("model.embed_tokens"), 1.0);
    }
}
