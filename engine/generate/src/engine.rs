//! Owns: a model with its words, and answers: a prompt's ids in, events of a reply out.
//! Refuses: transport and display; events go to a listener.
//! Invariants: the events of a reply, joined, do not depend on how its tokens fell into pieces of text; a token is told
//! before the events that it brought.

use std::sync::Arc;

use ss_model::{Cancel, Model, State};
use ss_text::{Detokenizer, Ending, Event, ReplyOptions, ReplyParser, SpecialTokens, Tokenizer};

use crate::Result;
use crate::constraint::Constraint;
use crate::generation::{DEFAULT_PREFILL_PASS, Drawn, Finish, Flow, Request, Step, Summary, generate};
use crate::logprobs::{IdLogprob, PromptLogprob};
use crate::sampler::SamplerSettings;
use crate::words::{Chat, Words};

/// A model with its words.
pub struct Engine {
    /// The model.
    pub model: Model,
    words: Arc<Words>,
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
    /// Most tokens of prompt and reply together, where that is less than the model's window.
    pub window: Option<u32>,
    /// Tells how likely each token was, with so many alternatives, at most [`crate::MAX_TOP_LOGPROBS`].
    pub logprobs: Option<u8>,
    /// Tells how likely each token of the prompt was, with as many alternatives as `logprobs` says.
    pub prompt_logprobs: bool,
}

impl Ask {
    /// A reply to these ids, greedy or not as `sampling` says, read as plain text.
    pub fn new(prompt: Vec<u32>, sampling: SamplerSettings) -> Self {
        Ask {
            prompt,
            max_tokens: None,
            sampling,
            reply: ReplyOptions::default(),
            prefill_pass: DEFAULT_PREFILL_PASS,
            window: None,
            logprobs: None,
            prompt_logprobs: false,
        }
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
    /// How likely the prompt's tokens were, if that was asked for: once, all of them, before the first token.
    Prompt(Vec<PromptLogprob>),
    /// A token of the reply; the events that it brought follow.
    Token(TokenTold),
    /// A piece of the reply.
    Reply(Event),
}

/// A token of a reply.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenTold {
    /// The token.
    pub id: u32,
    /// The text that it completes, special tokens written out; empty while a character lacks bytes. The texts of a reply's
    /// tokens joined are its whole text, but for an unfinished character at its end.
    pub text: String,
    /// The bytes that it stands for.
    pub bytes: Vec<u8>,
    /// Whether it belongs to the reasoning, the tag that closes it included.
    pub reasoning: bool,
    /// The natural logarithm of its probability, if that was asked for.
    pub logprob: Option<f32>,
    /// The likeliest ids in its place, descending, equal ones by id.
    pub top: Vec<IdLogprob>,
}

impl Engine {
    /// Joins a model and its words.
    pub fn new(model: Model, words: impl Into<Arc<Words>>) -> Self {
        Engine { model, words: words.into() }
    }

    /// The words, which other threads may hold too.
    pub fn words(&self) -> &Arc<Words> {
        &self.words
    }

    /// The tokenizer.
    pub fn tokenizer(&self) -> &Tokenizer {
        self.words.tokenizer()
    }

    /// Ids that end a reply.
    pub fn stop_ids(&self) -> &[u32] {
        self.words.stop_ids()
    }

    /// See [`Words::chat_ids`].
    ///
    /// # Errors
    /// When the template refuses the conversation.
    pub fn chat_ids(&self, chat: &Chat) -> Result<Vec<u32>> {
        self.words.chat_ids(chat)
    }

    /// See [`Words::raw_ids`].
    ///
    /// # Errors
    /// When the tokenizer cannot encode it.
    pub fn raw_ids(&self, text: &str) -> Result<Vec<u32>> {
        self.words.raw_ids(text)
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
        self.answer_within(state, ask, None, cancel, listen)
    }

    /// As [`Engine::answer`], the reply restricted token by token. The constraint is used up: a reply needs one of its own.
    ///
    /// # Errors
    /// As [`Engine::answer`]; also when the constraint cannot be kept.
    pub fn answer_within(
        &mut self,
        state: &mut State,
        ask: &Ask,
        constraint: Option<&mut dyn Constraint>,
        cancel: &Cancel,
        listen: &mut dyn FnMut(Told),
    ) -> Result<Summary> {
        let request = self.request(ask);
        let mut speech = Speech::new(self.words.tokenizer(), &ask.reply)?;
        let mut on_step = |step| speech.step(step, listen);
        let mut summary = generate(&mut self.model, state, &request, constraint, cancel, &mut on_step)?;
        summary.reasoning_tokens = speech.reasoning;
        speech.end(summary.finish, listen);
        Ok(summary)
    }

    fn request(&self, ask: &Ask) -> Request {
        Request {
            prompt: ask.prompt.clone(),
            max_tokens: ask.max_tokens,
            stop_ids: self.words.stop_ids().to_vec(),
            sampling: ask.sampling.clone(),
            vocabulary: self.words.tokenizer().vocabulary() as u32,
            prefill_pass: ask.prefill_pass,
            window: ask.window,
            logprobs: ask.logprobs,
            prompt_logprobs: ask.prompt_logprobs,
        }
    }
}

/// A reply while it is made: ids become text, and text becomes events.
struct Speech<'t> {
    tokenizer: &'t Tokenizer,
    parser: ReplyParser,
    /// What the reader of the reply sees.
    spoken: Detokenizer,
    /// What the tokens stand for.
    written: Detokenizer,
    /// Tokens of the reasoning so far.
    reasoning: u32,
}

impl<'t> Speech<'t> {
    fn new(tokenizer: &'t Tokenizer, reply: &ReplyOptions) -> Result<Self> {
        Ok(Speech {
            tokenizer,
            parser: ReplyParser::new(reply.clone())?,
            spoken: Detokenizer::new(tokenizer, SpecialTokens::Drop),
            written: Detokenizer::new(tokenizer, SpecialTokens::Keep),
            reasoning: 0,
        })
    }

    fn step(&mut self, step: Step, listen: &mut dyn FnMut(Told)) -> Flow {
        match step {
            Step::Prefilled { done, total } => listen(Told::Prefilled { done, total }),
            Step::Prompt(logprobs) => listen(Told::Prompt(logprobs)),
            Step::Token(drawn) => self.token(drawn, listen),
        }
        if self.parser.is_over() { Flow::Stop } else { Flow::Continue }
    }

    fn token(&mut self, Drawn { id, logprob, top }: Drawn, listen: &mut dyn FnMut(Told)) {
        let reasoning = self.parser.is_reasoning();
        self.reasoning += u32::from(reasoning);
        let (text, bytes) = (self.written.push(id), self.tokenizer.bytes_of(id).to_vec());
        listen(Told::Token(TokenTold { id, text, bytes, reasoning, logprob, top }));
        self.parser.push(&self.spoken.push(id)).into_iter().for_each(|event| listen(Told::Reply(event)));
    }

    /// Tells what was held back.
    fn end(mut self, finish: Finish, listen: &mut dyn FnMut(Told)) {
        let ending = if finish == Finish::Stop { Ending::Natural } else { Ending::Cut };
        let mut rest = self.parser.push(&self.spoken.finish());
        rest.extend(self.parser.finish(ending));
        rest.into_iter().for_each(|event| listen(Told::Reply(event)));
    }
}
