//! Owns: what is done to logits on the device before the largest of them come back: bias, penalties, mask (engine.md 5.3).
//! Refuses: drawing from them.
//! Invariants: nothing of a request lies in an operation, so that passes can be encoded before their token is known; the
//! counts on the device lack what the last pass was fed until the next pass begins.

use ss_backend::op::{LogitRules, TOP, TOP_HEAD, TOP_NOT_FINITE, TOP_SEEN, TOP_UNRANKED, Top};
use ss_backend::{Backend, Buffer, Rows, Scope, Stage, Wanted};
use ss_checkpoint::Geometry;

use crate::graph::Run;
use crate::workspace::{Area, HEAD_ROWS};
use crate::{Error, Model, Result};

/// How a reply's logits are changed before ids are drawn (server.md section 5).
#[derive(Clone, Debug, PartialEq)]
pub struct LogitSettings {
    /// Ids below may be drawn: those of the tokenizer.
    pub vocabulary: u32,
    /// Subtracted from the logit of every id that the reply holds.
    pub presence_penalty: f32,
    /// Subtracted as often as the reply holds the id.
    pub frequency_penalty: f32,
    /// Divides positive logits, and multiplies others, of every id that the prompt or the reply holds; 1 changes nothing.
    pub repetition_penalty: f32,
    /// Added to the logit of each id named.
    pub bias: Vec<(u32, f32)>,
}

impl LogitSettings {
    /// Settings that change nothing.
    pub fn none(vocabulary: u32) -> Self {
        LogitSettings {
            vocabulary,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            repetition_penalty: 1.0,
            bias: Vec::new(),
        }
    }

    fn counts(&self) -> bool {
        (self.presence_penalty, self.frequency_penalty, self.repetition_penalty) != (0.0, 0.0, 1.0)
    }
}

/// The likeliest ids behind a row.
#[derive(Clone, Debug, PartialEq)]
pub struct Likeliest {
    /// At most [`TOP`] ids with their logits, descending; equal logits by ascending id.
    pub ids: Vec<(u32, f32)>,
    /// Logarithm of the sum of `e^logit` over all ids that may be drawn.
    pub log_sum: f32,
    /// Whether `ids` are all that may be drawn.
    pub complete: bool,
    /// Whether there were more equal logits at the end of the list than could be ranked; `ids` is empty then.
    pub unranked: bool,
}

impl Likeliest {
    /// Most ids of a list.
    pub const MOST: usize = TOP as usize;
}

/// The rules of the current reply, on the host and on the device.
pub(crate) struct Chooser {
    rules: LogitRules,
    /// As on the device.
    counts: Vec<u32>,
    /// What the last pass was fed, not counted on the device yet.
    fed: Vec<u32>,
    /// The mask on the device, in force or not.
    mask: Vec<u32>,
    on_device: Tables,
    /// Rows of all logits that were read.
    pub rows_read: u64,
}

struct Tables {
    rules: Buffer,
    counts: Buffer,
    bias: Buffer,
    mask: Buffer,
    adjusted: Buffer,
    out: Buffer,
}

impl Chooser {
    /// Memory for a model, and rules that change nothing.
    pub fn new(backend: &dyn Backend, g: &Geometry) -> Result<Self> {
        let words = |label: &str, count: u32| backend.alloc(label, 4 * u64::from(count));
        let on_device = Tables {
            rules: words("logit rules", LogitRules::WORDS)?,
            counts: words("token counts", g.vocab)?,
            bias: words("logit bias", g.vocab)?,
            mask: words("token mask", g.vocab.div_ceil(u32::BITS))?,
            adjusted: words("adjusted logits", HEAD_ROWS * g.vocab)?,
            out: words("likeliest ids", HEAD_ROWS * Top::WORDS)?,
        };
        let rules = LogitRules::none(g.vocab);
        backend.upload(&on_device.rules, 0, bytemuck::bytes_of(&rules))?;
        let counts = vec![0; g.vocab as usize];
        Ok(Chooser { rules, counts, fed: Vec::new(), mask: Vec::new(), on_device, rows_read: 0 })
    }

    /// What is read of some rows.
    pub fn wanted(&self, rows: u32) -> Wanted {
        Wanted { source: self.on_device.out.clone(), offset: 0, bytes: 4 * u64::from(rows * Top::WORDS) }
    }

    /// Counts what the pass before was fed, and remembers what this one is.
    pub fn feed(&mut self, backend: &dyn Backend, ids: &[u32]) -> Result<()> {
        if self.rules.counted == 0 {
            return Ok(());
        }
        for id in std::mem::take(&mut self.fed) {
            if let Some(count) = self.counts.get_mut(id as usize) {
                *count = (*count | TOP_SEEN) + 1;
                backend.upload(&self.on_device.counts, 4 * u64::from(id), &count.to_le_bytes())?;
            }
        }
        self.fed.extend_from_slice(ids);
        Ok(())
    }

    fn begin(&mut self, backend: &dyn Backend, settings: &LogitSettings, prompt: &[u32]) -> Result<()> {
        let counted = settings.counts();
        self.fed.clear();
        self.rules = LogitRules {
            vocabulary: settings.vocabulary,
            masked: 0,
            biased: u32::from(!settings.bias.is_empty()),
            counted: u32::from(counted),
            presence: settings.presence_penalty,
            frequency: settings.frequency_penalty,
            repetition: settings.repetition_penalty,
            repetition_inverse: settings.repetition_penalty.recip(),
        };
        if counted {
            self.counts.fill(0);
            for &id in prompt {
                if let Some(count) = self.counts.get_mut(id as usize) {
                    *count = TOP_SEEN;
                }
            }
            backend.upload(&self.on_device.counts, 0, bytemuck::cast_slice(&self.counts))?;
        }
        if !settings.bias.is_empty() {
            let mut bias = vec![0f32; self.counts.len()];
            for &(id, add) in &settings.bias {
                if let Some(sum) = bias.get_mut(id as usize) {
                    *sum += add;
                }
            }
            backend.upload(&self.on_device.bias, 0, bytemuck::cast_slice(&bias))?;
        }
        Ok(backend.upload(&self.on_device.rules, 0, bytemuck::bytes_of(&self.rules))?)
    }

    fn mask(&mut self, backend: &dyn Backend, mask: Option<&[u32]>) -> Result<()> {
        if let Some(words) = mask {
            let mut whole = vec![0u32; self.counts.len().div_ceil(u32::BITS as usize)];
            whole.iter_mut().zip(words).for_each(|(word, given)| *word = *given);
            if whole != self.mask {
                // Should the upload fail, what lies there is not known.
                self.mask.clear();
                backend.upload(&self.on_device.mask, 0, bytemuck::cast_slice(&whole))?;
                self.mask = whole;
            }
        }
        let masked = u32::from(mask.is_some());
        if masked != self.rules.masked {
            self.rules.masked = masked;
            backend.upload(&self.on_device.rules, 0, bytemuck::bytes_of(&self.rules))?;
        }
        Ok(())
    }
}

impl Run<'_> {
    /// Lists the likeliest ids behind the rows whose logits the head gave.
    pub fn choose(&mut self, chooser: &Chooser, rows: Rows) {
        let tables = &chooser.on_device;
        self.rec.at(Scope::Whole, Stage::Choice).top(Top {
            rows,
            vocab: self.geometry.vocab,
            logits: self.work.at(Area::Logits),
            ids: self.work.at(Area::Ids),
            rules: tables.rules.clone(),
            counts: tables.counts.clone(),
            bias: tables.bias.clone(),
            mask: tables.mask.clone(),
            adjusted: tables.adjusted.clone(),
            out: tables.out.clone(),
        });
    }
}

impl Model {
    /// Begins a reply to `prompt`: passes that list the likeliest ids keep to these settings from here on.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn begin_reply(&mut self, settings: &LogitSettings, prompt: &[u32]) -> Result<()> {
        self.chooser.begin(self.backend.as_ref(), settings, prompt)
    }

    /// Restricts the ids behind the passes from here on: bit `id % 32` of word `id / 32` allows an id. Ids past the words are not
    /// allowed; without a mask all are. A mask that is on the device already is not uploaded again.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn set_mask(&mut self, mask: Option<&[u32]>) -> Result<()> {
        self.chooser.mask(self.backend.as_ref(), mask)
    }

    /// All logits of a row of the last pass that listed the likeliest ids, bias, penalties and mask applied: what may not be
    /// drawn is minus infinity. Counted, since it takes a round trip.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn adjusted_row(&mut self, row: u32) -> Result<Vec<f32>> {
        let mut logits = vec![0f32; self.geometry().vocab as usize];
        let offset = 4 * u64::from(row) * logits.len() as u64;
        self.backend.read(&self.chooser.on_device.adjusted, offset, bytemuck::cast_slice_mut(&mut logits))?;
        self.chooser.rows_read += 1;
        Ok(logits)
    }

    /// All logits of a row of the last pass that listed the likeliest ids, as the head gave them.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn raw_row(&self, row: u32) -> Result<Vec<f32>> {
        let mut logits = vec![0f32; self.geometry().vocab as usize];
        let offset = 4 * u64::from(row) * logits.len() as u64;
        self.backend.read(&self.work.at(Area::Logits), offset, bytemuck::cast_slice_mut(&mut logits))?;
        Ok(logits)
    }

    /// Rows of all logits that were read because a list of the likeliest was not enough.
    pub fn rows_read(&self) -> u64 {
        self.chooser.rows_read
    }

    /// What a device listed of a row.
    pub(crate) fn likeliest(&self, words: &[u32]) -> Result<Likeliest> {
        let short = || Error::Request("a short readback");
        let (head, list) = words.split_at_checked(TOP_HEAD as usize).ok_or_else(short)?;
        let [listed, flags, log_sum, _] = *head else { return Err(short()) };
        // Damaged weights that are finite themselves can still overflow; they must never become tokens (I6).
        if flags & TOP_NOT_FINITE != 0 {
            return Err(Error::NotFinite { dir: self.checkpoint.dir().to_owned() });
        }
        let pairs = list.chunks_exact(2).take(listed as usize);
        let unranked = flags & TOP_UNRANKED != 0;
        Ok(Likeliest {
            ids: pairs.map(|pair| (pair[1], f32::from_bits(pair[0]))).collect(),
            log_sum: f32::from_bits(log_sum),
            complete: listed < TOP && !unranked,
            unranked,
        })
    }
}
