//! Owns: what the server needs of an engine: words, which any thread may use at any time, and a model, which makes one reply
//! after the other on a thread of its own.
//! Refuses: HTTP, and any one way of making replies: the real engine and the scripted one both stand behind it.
//! Invariants: whatever ends a reply, the next one starts from a whole engine.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use ss_generate::{Chat, Constraint, SamplerSettings};
use ss_model::Cancel;
use ss_text::{Event, ReplyOptions};

use crate::refusal::Refusal;
use crate::request::{Format, Tool, ToolChoice};
use crate::snapshot::EngineView;

/// What the model may write.
#[derive(Clone, Debug, PartialEq)]
pub struct Rules {
    /// What the answer must be.
    pub format: Format,
    /// Tools that are shown.
    pub tools: Vec<Tool>,
    /// Whether one is to be called.
    pub choice: ToolChoice,
    /// Whether several may be called.
    pub parallel: bool,
    /// Whether the reply begins inside the reasoning.
    pub thinking: bool,
}

impl Rules {
    /// Whether they forbid anything.
    pub fn bind(&self) -> bool {
        self.format != Format::Text
            || matches!(self.choice, ToolChoice::Required | ToolChoice::Named(_))
            || self.tools.iter().any(|tool| tool.strict)
    }
}

/// The words of a model.
pub trait Words: Send + Sync {
    /// What is fixed about the model.
    fn facts(&self) -> &Facts;

    /// Ids of a conversation.
    ///
    /// # Errors
    /// When the template refuses it, or it cannot fit the window.
    fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>, Refusal>;

    /// The text of a conversation as the template writes it.
    ///
    /// # Errors
    /// When the template refuses it.
    fn chat_text(&self, chat: &Chat) -> Result<String, Refusal>;

    /// Ids of a text.
    ///
    /// # Errors
    /// When it cannot fit the window.
    fn text_ids(&self, text: &str) -> Result<Vec<u32>, Refusal>;

    /// The text of ids, control tokens included.
    fn text_of(&self, ids: &[u32]) -> String;

    /// What holds a reply to its rules; none where they forbid nothing.
    ///
    /// # Errors
    /// When a schema or grammar asks for what cannot be enforced; the keyword is named.
    fn constrain(&self, rules: &Rules) -> Result<Option<Box<dyn Constraint>>, Refusal>;
}

/// What is fixed about a model.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Most tokens of prompt and reply.
    pub window: u32,
    /// Ids that the tokenizer uses lie below.
    pub vocabulary: u32,
    /// The model's own sampler settings.
    pub generation_config: Option<Value>,
    /// Whether it is the model that the default settings were made for.
    pub released: bool,
    /// Bytes of all weights.
    pub bytes: u64,
    /// The architecture's name, as in `qwen3_flash_next`.
    pub architecture: String,
    /// Parameters, in words, as in `125B`.
    pub parameters: String,
    /// How weights are stored, as in `4-bit`.
    pub quantization: String,
    /// The chat template's text.
    pub template: String,
    /// Identity of the weights: 64 hexadecimal digits.
    pub digest: String,
    /// When the model's files were last written, in seconds since 1970.
    pub modified: u64,
}

/// A reply to be made: everything is checked, and rendered.
pub struct Job {
    /// The prompt's ids.
    pub prompt: Vec<u32>,
    /// Most tokens of the reply.
    pub max_tokens: Option<u32>,
    /// Most tokens of prompt and reply.
    pub window: u32,
    /// How tokens are drawn.
    pub sampling: SamplerSettings,
    /// How the reply is read.
    pub reply: ReplyOptions,
    /// What holds it to its rules.
    pub constraint: Option<Box<dyn Constraint>>,
    /// How many alternatives are told of each token; none: no probabilities.
    pub logprobs: Option<u8>,
    /// Whether probabilities of the prompt's tokens are told.
    pub prompt_logprobs: bool,
}

/// A token with how likely it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Token {
    /// The token.
    pub id: u32,
    /// Its text, as far as its bytes are text.
    pub text: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Natural logarithm of its probability; none for the first of a prompt, and where it is not wanted.
    pub logprob: Option<f32>,
    /// The likeliest tokens in its place: text, bytes, logarithm; the likeliest first.
    pub top: Vec<(String, Vec<u8>, f32)>,
}

/// Something that is told while a reply is made.
#[derive(Clone, Debug, PartialEq)]
pub enum Piece {
    /// So many prompt tokens of so many are read.
    Reading {
        /// Read.
        done: usize,
        /// In all.
        total: usize,
    },
    /// The prompt's tokens.
    Prompt(Vec<Token>),
    /// A token of the reply, told before what it brought; its likelihood only when that is wanted.
    Token(Token),
    /// What a token brought.
    Event(Event),
}

impl Piece {
    /// Bytes that it holds, about.
    pub fn weight(&self) -> usize {
        const AROUND: usize = 128;
        let token = |token: &Token| AROUND * (1 + token.top.len());
        AROUND
            + match self {
                Piece::Reading { .. } => 0,
                Piece::Prompt(tokens) => tokens.iter().map(token).sum(),
                Piece::Token(one) => token(one),
                Piece::Event(Event::Reasoning(text) | Event::Text(text) | Event::Stop(text)) => text.len(),
                Piece::Event(Event::CallArguments { json, .. }) => json.len(),
                Piece::Event(Event::CallEnd { arguments, .. }) => arguments.len(),
                Piece::Event(Event::CallStart { .. } | Event::Failed(_)) => 0,
            }
    }
}

/// Why a reply ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The model ended it, or a stop string did.
    Stop,
    /// The token limit of the request.
    Limit,
    /// The window.
    Window,
    /// It went round in circles.
    Repeated,
    /// It was cancelled.
    Cancelled,
}

impl Ended {
    /// Whether the reply was cut short.
    pub const fn is_cut(self) -> bool {
        !matches!(self, Ended::Stop)
    }
}

/// What a reply came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Outcome {
    /// Why it ended.
    pub ended: Ended,
    /// Tokens of the prompt.
    pub prompt: u32,
    /// Of those, tokens whose state was there already. There is no prefix cache yet: it is 0.
    pub cached: u32,
    /// Tokens of the reply.
    pub output: u32,
    /// Of those, tokens of reasoning.
    pub reasoning: u32,
    /// Time of the prompt.
    pub prefill: Duration,
    /// Time of the reply.
    pub decode: Duration,
}

/// Tells what there is to see of an engine.
pub type Watch = Arc<dyn Fn() -> EngineView + Send + Sync>;

/// Makes replies.
pub trait Engine: Send {
    /// Makes a reply; tells every piece as it comes.
    ///
    /// # Errors
    /// When the engine fails. Being cancelled is no error.
    fn answer(&mut self, job: Job, cancel: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal>;

    /// Tells what there is to see of the engine, at any time and from any thread, without waiting for it.
    fn watch(&self) -> Watch;
}
