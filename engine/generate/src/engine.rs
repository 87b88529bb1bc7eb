//! Owns: a model with its words: tokenizer, chat template, ids that end a reply.
//! Refuses: transport and display; events go to a listener.
//! Invariants: the events of a reply, joined, do not depend on how its tokens fell into pieces of text.

use serde_json::{Map, Value};
use ss_checkpoint::Checkpoint;
use ss_model::{Cancel, Model, State};
use ss_text::{AddedTokens, Detokenizer, Ending, Event, ReplyOptions, ReplyParser, SpecialTokens, Template, Tokenizer};

use crate::generation::{DEFAULT_PREFILL_PASS, Finish, Flow, Request, Step, Summary, generate};
use crate::sampler::SamplerSettings;
use crate::{Error, Result};

/// Ends every reply of the family, whatever the configuration says (server.md section 5).
const ENDS: [&str; 2] = ["<|im_end|>", "<|endoftext|>"];

/// The words of a model: they are read before its weights, which may take minutes.
pub struct Words {
    tokenizer: Tokenizer,
    /// Bytes of the longest token: a text has at least so many tokens as these go into it.
    longest: usize,
    template: Template,
    stop_ids: Vec<u32>,
}

impl Words {
    /// Reads the words beside a checkpoint.
    ///
    /// # Errors
    /// When the tokenizer is absent or broken, or names more tokens than the model has; when the template is broken.
    pub fn open(checkpoint: &Checkpoint) -> Result<Self> {
        let tokenizer = Tokenizer::open(checkpoint.dir())?;
        let vocab = checkpoint.geometry().vocab;
        if tokenizer.vocabulary() > vocab as usize {
            return Err(Error::Vocabulary { path: tokenizer.path().to_owned(), found: tokenizer.vocabulary(), vocab });
        }
        let template = Template::open(checkpoint.dir(), tokenizer.added_edges())?;
        let mut stop_ids = checkpoint.stop_ids()?;
        stop_ids.extend(ENDS.iter().filter_map(|text| tokenizer.id_of(text)));
        stop_ids.sort_unstable();
        stop_ids.dedup();
        let longest =
            (0..tokenizer.vocabulary() as u32).map(|id| tokenizer.bytes_of(id).len()).max().unwrap_or(1).max(1);
        Ok(Words { tokenizer, longest, template, stop_ids })
    }
}

/// A model with its words.
pub struct Engine {
    /// The model.
    pub model: Model,
    words: Words,
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

/// How a reply is to be made.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The prompt.
    pub prompt: Vec<u32>,
    /// Most tokens of the reply.
    pub max_tokens: Option<u32>,
    /// How tokens are drawn.
    pub sampling: SamplerSettings,
    /// How the reply is read.
    pub reply: ReplyOptions,
    /// Rows of a prefill pass.
    pub prefill_pass: u32,
}

impl Ask {
    /// A reply to these ids, greedy or not as `sampling` says, read as plain text.
    pub fn new(prompt: Vec<u32>, sampling: SamplerSettings) -> Self {
        Ask { prompt, max_tokens: None, sampling, reply: ReplyOptions::default(), prefill_pass: DEFAULT_PREFILL_PASS }
    }
}

/// What is told while a reply is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Told {
    /// So many prompt tokens of so many are read.
    Prefilled {
        /// Read.
        done: usize,
        /// In all.
        total: usize,
    },
    /// A piece of the reply.
    Reply(Event),
}

impl Engine {
    /// Joins a model and its words.
    pub fn new(model: Model, words: Words) -> Self {
        Engine { model, words }
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.words.tokenizer
    }

    /// Ids that end a reply.
    pub fn stop_ids(&self) -> &[u32] {
        &self.words.stop_ids
    }

    /// Ids of a conversation. Only the template's own text makes control tokens.
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>> {
        let prompt = self.words.template.render(&chat.messages, &chat.tools, &chat.options)?;
        self.check_length(prompt.text().len())?;
        Ok(self.words.tokenizer.encode_prompt(&prompt)?)
    }

    /// Ids of a text that is continued as it is.
    ///
    /// # Errors
    /// When the tokenizer cannot encode it.
    pub fn raw_ids(&self, text: &str) -> Result<Vec<u32>> {
        self.check_length(text.len())?;
        Ok(self.words.tokenizer.encode(text, AddedTokens::Recognise)?)
    }

    /// Refuses a text that cannot fit the window before it is encoded, which takes long for a long one.
    fn check_length(&self, bytes: usize) -> Result<()> {
        let (wanted, limit) = (bytes.div_ceil(self.words.longest) as u64, self.model.geometry().max_positions);
        if wanted > u64::from(limit) { Err(ss_model::Error::Context { wanted, limit }.into()) } else { Ok(()) }
    }

    /// Reads the prompt into `state` and makes the reply, telling `listen` of every piece.
    ///
    /// # Errors
    /// As [`generate`]; also when there are too many stop strings or they are too long.
    pub fn answer(
        &mut self,
        state: &mut State,
        ask: &Ask,
        cancel: &Cancel,
        listen: &mut dyn FnMut(Told),
    ) -> Result<Summary> {
        let mut parser = ReplyParser::new(ask.reply.clone())?;
        let mut spoken = Detokenizer::new(&self.words.tokenizer, SpecialTokens::Drop);
        let request = Request {
            prompt: ask.prompt.clone(),
            max_tokens: ask.max_tokens,
            stop_ids: self.words.stop_ids.clone(),
            sampling: ask.sampling.clone(),
            vocabulary: self.words.tokenizer.vocabulary() as u32,
            prefill_pass: ask.prefill_pass,
        };
        let mut on_step = |step| {
            match step {
                Step::Prefilled { done, total } => listen(Told::Prefilled { done, total }),
                Step::Token(id) => {
                    parser.push(&spoken.push(id)).into_iter().for_each(|event| listen(Told::Reply(event)))
                }
            }
            if parser.is_over() { Flow::Stop } else { Flow::Continue }
        };
        let summary = generate(&mut self.model, state, &request, cancel, &mut on_step)?;
        let ending = if summary.finish == Finish::Stop { Ending::Natural } else { Ending::Cut };
        let mut rest = parser.push(&spoken.finish());
        rest.extend(parser.finish(ending));
        rest.into_iter().for_each(|event| listen(Told::Reply(event)));
        Ok(summary)
    }
}
