//! Owns: the real engine behind the server's traits: a checkpoint's words, and a model on a device.
//! Refuses: loading; who starts the server loads.
//! Invariants: every reply starts from a fresh sequence; what is told of the pool is told between tokens, never by stopping one.

use std::sync::Arc;

use ss_checkpoint::Checkpoint;
use ss_generate::{Chat, Constraint};

use crate::engine::{Facts, Rules, Words};
use crate::refusal::Refusal;

/// The words of a checkpoint.
pub struct RealWords {
    words: Arc<ss_generate::Words>,
    facts: Facts,
}

impl RealWords {
    /// The words beside a checkpoint.
    ///
    /// # Errors
    /// When its template or its own sampler settings cannot be read.
    pub fn new(words: Arc<ss_generate::Words>, checkpoint: &Checkpoint) -> Result<Self, ss_generate::Error> {
        let facts = Facts {
            window: words.max_positions(),
            vocabulary: words.tokenizer().vocabulary() as u32,
            generation_config: checkpoint.generation_config()?,
            released: checkpoint.geometry().is_released(),
            template: checkpoint.chat_template()?,
            ..crate::describe::facts(checkpoint)
        };
        Ok(RealWords { words, facts })
    }
}

impl Words for RealWords {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>, Refusal> {
        self.words.chat_ids(chat).map_err(refusal)
    }

    fn chat_text(&self, chat: &Chat) -> Result<String, Refusal> {
        self.words.chat_text(chat).map_err(refusal)
    }

    fn text_ids(&self, text: &str) -> Result<Vec<u32>, Refusal> {
        self.words.raw_ids(text).map_err(refusal)
    }

    fn text_of(&self, ids: &[u32]) -> String {
        self.words.text_of(ids)
    }

    fn constrain(&self, _rules: &Rules) -> Result<Option<Box<dyn Constraint>>, Refusal> {
        Ok(None)
    }
}

/// What a failure of words or engine is to a client.
pub fn refusal(error: ss_generate::Error) -> Refusal {
    use ss_generate::Error;
    match error {
        Error::Model(ss_model::Error::Context { wanted, limit }) => {
            Refusal::context(wanted.saturating_sub(1), u64::from(limit))
        }
        Error::Text(error) => Refusal::field("messages", error.to_string()),
        other => Refusal::inference(other.to_string()),
    }
}
