//! Owns: the words of a model: tokenizer, chat template, ids that end a reply, and how much a window holds.
//! Refuses: a tokenizer of another model, and texts that cannot fit the window.
//! Invariants: nothing changes once they are read, so that every thread may ask them while a reply is made.

use std::path::Path;

use serde_json::{Map, Value};
use ss_checkpoint::Checkpoint;
use ss_text::{AddedTokens, Prompt, SpecialTokens, Template, Tokenizer};

use crate::{Error, Result};

/// Bytes of a text that is encoded, whatever its length in tokens: a fraction of a second.
const COUNTED: usize = 1 << 20;

/// Ends every reply of the family, whatever the configuration says (server.md section 5).
const ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// The words of a model: they are read before its weights, which may take minutes.
pub struct Words {
    tokenizer: Tokenizer,
    /// Bytes of the longest token: a text has at least so many tokens as these go into it.
    longest: usize,
    template: Template,
    stop_ids: Vec<u32>,
    max_positions: u32,
}

/// A conversation to be continued.
#[derive(Clone, Debug, Default)]
pub struct Chat {
    /// Messages in OpenAI's form.
    pub messages: Vec<Value>,
    /// Tools in OpenAI's form; empty when none are offered.
    pub tools: Vec<Value>,
    /// Variables of the template.
    pub options: Map<String, Value>,
}

impl Words {
    /// Reads the words beside a checkpoint.
    ///
    /// # Errors
    /// When the tokenizer is absent or broken, or names more tokens than the model has; when the template is broken.
    pub fn open(checkpoint: &Checkpoint) -> Result<Self> {
        let geometry = checkpoint.geometry();
        let words = Self::read(checkpoint.dir(), checkpoint.stop_ids()?, geometry.max_positions)?;
        let (found, vocab) = (words.tokenizer.vocabulary(), geometry.vocab);
        if found > vocab as usize {
            return Err(Error::Vocabulary { path: words.tokenizer.path().to_owned(), found, vocab });
        }
        Ok(words)
    }

    /// Reads the words in a directory; besides the family's own, these ids end a reply.
    ///
    /// # Errors
    /// When the tokenizer is absent or broken; when the template is broken.
    pub fn read(dir: &Path, mut stop_ids: Vec<u32>, max_positions: u32) -> Result<Self> {
        let tokenizer = Tokenizer::open(dir)?;
        let template = Template::open(dir, tokenizer.added_edges())?;
        stop_ids.extend(ENDS.iter().filter_map(|text| tokenizer.id_of(text)));
        stop_ids.sort_unstable();
        stop_ids.dedup();
        let longest =
            (0..tokenizer.vocabulary() as u32).map(|id| tokenizer.bytes_of(id).len()).max().unwrap_or(1).max(1);
        Ok(Words { tokenizer, longest, template, stop_ids, max_positions })
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Ids that end a reply, ascending.
    pub fn stop_ids(&self) -> &[u32] {
        &self.stop_ids
    }

    /// Most tokens of a prompt and its reply together.
    pub fn max_positions(&self) -> u32 {
        self.max_positions
    }

    /// Ids of a conversation. Only the template's own text makes control tokens.
    ///
    /// # Errors
    /// When the template refuses the conversation, or its text cannot fit the window.
    pub fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>> {
        let prompt = self.render(chat)?;
        self.check_length(prompt.text().len())?;
        Ok(self.tokenizer.encode_prompt(&prompt)?)
    }

    /// The text of a conversation as the model reads it.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub fn chat_text(&self, chat: &Chat) -> Result<String> {
        Ok(self.render(chat)?.text().into_owned())
    }

    /// Ids of a text that is continued as it is.
    ///
    /// # Errors
    /// When the text cannot fit the window, or the tokenizer cannot encode it.
    pub fn raw_ids(&self, text: &str) -> Result<Vec<u32>> {
        self.check_length(text.len())?;
        Ok(self.tokenizer.encode(text, AddedTokens::Recognise)?)
    }

    /// The text of some ids, special tokens written out.
    pub fn text_of(&self, ids: &[u32]) -> String {
        self.tokenizer.decode(ids, SpecialTokens::Keep)
    }

    /// Refuses a prompt of so many tokens that leaves no room for a token of the reply, in the model's window or a smaller
    /// one.
    ///
    /// # Errors
    /// Names what the prompt wants and what the window holds.
    pub fn check_room(&self, prompt: usize, window: Option<u32>) -> Result<()> {
        let limit = window.map_or(self.max_positions, |window| window.min(self.max_positions));
        let wanted = prompt as u64 + 1;
        if wanted > u64::from(limit) { Err(ss_model::Error::Context { wanted, limit }.into()) } else { Ok(()) }
    }

    fn render(&self, chat: &Chat) -> Result<Prompt> {
        Ok(self.template.render(&chat.messages, &chat.tools, &chat.options)?)
    }

    /// Refuses a long text that cannot fit the window before it is encoded, which takes long; what is said of it is the least
    /// that it can be. A shorter one is counted.
    fn check_length(&self, bytes: usize) -> Result<()> {
        let (wanted, limit) = (bytes.div_ceil(self.longest) as u64, self.max_positions);
        if bytes > COUNTED && wanted > u64::from(limit) {
            Err(ss_model::Error::Context { wanted, limit }.into())
        } else {
            Ok(())
        }
    }
}
