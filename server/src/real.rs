//! Owns: the real engine behind the server's traits: a checkpoint's words, and a model on a device.
//! Refuses: loading; who starts the server loads.
//! Invariants: every reply starts from a fresh sequence; what is told of the pool is told between tokens, never by stopping one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use serde_json::json;
use ss_checkpoint::Checkpoint;
use ss_generate::{Ask, Chat, Constraint, Finish, IdLogprob, Summary, Told};
use ss_grammar::{Grammar, Grammars, Options, ToolRule};
use ss_model::Cancel;
use ss_stream::Store;
use ss_text::{Detokenizer, SpecialTokens};

use crate::engine::{Ended, Engine, Facts, Job, Outcome, Piece, Rules, Token, Watch, Words};
use crate::refusal::Refusal;
use crate::request::{Format, Tool, ToolChoice};
use crate::snapshot::{EngineView, LayerView, MemoryPart};

/// How often the pool is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// The words of a checkpoint.
pub struct RealWords {
    words: Arc<ss_generate::Words>,
    grammars: Grammars,
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
        Ok(RealWords { grammars: Grammars::new(words.clone()), words, facts })
    }
}

impl RealWords {
    /// Prepares what the first constrained reply would wait for: seconds at a quarter of a million tokens.
    pub fn warm(&self) {
        if let Err(error) = self.grammars.warm() {
            tracing::warn!(%error, "replies cannot be held to schemas");
        }
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

    fn constrain(&self, rules: &Rules) -> Result<Option<Box<dyn Constraint>>, Refusal> {
        let Some(grammar) = grammar(rules) else { return Ok(None) };
        let options = Options { thinking: rules.thinking };
        match self.grammars.compile(&grammar, &options) {
            Ok(compiled) => Ok(Some(Box::new(compiled))),
            // Of a tool that nobody asked to be strict about, a schema that cannot be held to is left out: the call's form stays.
            Err(_) if let Some(loose) = self.loosened(&grammar, rules, &options) => {
                let compiled = self.grammars.compile(&loose, &options).map_err(|error| unwritable(rules, &error))?;
                Ok(Some(Box::new(compiled)))
            }
            Err(error) => Err(unwritable(rules, &error)),
        }
    }
}

impl RealWords {
    /// A choice of tools without those schemas that cannot be held to, where they need not be; none where that changes
    /// nothing.
    fn loosened(&self, grammar: &Grammar, rules: &Rules, options: &Options) -> Option<Grammar> {
        let Grammar::Tools { tools, required: true, at_most_one, named } = grammar else { return None };
        let stays = |tool: &ToolRule| {
            let alone =
                Grammar::Tools { tools: vec![tool.clone()], required: true, at_most_one: *at_most_one, named: None };
            rules.tools.iter().any(|asked| asked.name == tool.name && asked.strict)
                || self.grammars.compile(&alone, options).is_ok()
        };
        let loose = tools.iter().map(|tool| ToolRule { strict: stays(tool), ..tool.clone() }).collect();
        Some(Grammar::Tools { tools: loose, required: true, at_most_one: *at_most_one, named: named.clone() })
    }
}

/// The grammar of a reply.
fn grammar(rules: &Rules) -> Option<Grammar> {
    let must_call = matches!(rules.choice, ToolChoice::Required | ToolChoice::Named(_)) && !rules.tools.is_empty();
    let tool = |tool: &Tool| ToolRule {
        name: tool.name.clone(),
        parameters: tool.parameters.clone(),
        strict: tool.strict || must_call,
    };
    let tools: Vec<ToolRule> = rules.tools.iter().map(tool).collect();
    let at_most_one = !rules.parallel;
    let named = if let ToolChoice::Named(name) = &rules.choice { Some(name.clone()) } else { None };
    Some(match &rules.format {
        _ if must_call => Grammar::Tools { tools, required: true, at_most_one, named },
        Format::Text => Grammar::Tools { tools, required: false, at_most_one, named: None },
        Format::Regex(regex) => Grammar::Regex(regex.clone()),
        Format::Grammar(grammar) => Grammar::Lark(grammar.clone()),
        Format::Json if tools.is_empty() => Grammar::JsonObject,
        Format::Schema(schema) if tools.is_empty() => Grammar::JsonSchema(schema.clone()),
        Format::Json => Grammar::JsonOrTools { schema: json!({ "type": "object" }), tools, at_most_one },
        Format::Schema(schema) => Grammar::JsonOrTools { schema: schema.clone(), tools, at_most_one },
    })
}

fn unwritable(rules: &Rules, error: &ss_grammar::Error) -> Refusal {
    let field = if rules.format == Format::Text { "tools" } else { "response_format" };
    Refusal::field(field, error.to_string())
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

/// A model on a device.
pub struct RealEngine {
    engine: ss_generate::Engine,
    prefill_pass: u32,
    view: Arc<Mutex<EngineView>>,
}

/// What the server's board shows of how an engine was loaded.
#[derive(Clone, Debug, Default)]
pub struct Loaded {
    /// What is allocated.
    pub memory: Vec<MemoryPart>,
    /// Memory of this machine, in bytes.
    pub machine_bytes: u64,
    /// Slots of the pool.
    pub slots: u32,
    /// Rows of a prefill pass.
    pub prefill_pass: u32,
}

impl RealEngine {
    /// An engine that was loaded so.
    pub fn new(mut engine: ss_generate::Engine, loaded: Loaded) -> Self {
        let (facts, geometry) = (engine.model.backend().facts().clone(), engine.model.geometry().clone());
        let experts = geometry.layers.len() as u32 * geometry.experts;
        let view = Arc::new(Mutex::new(EngineView {
            backend: facts.backend.to_owned(),
            device: facts.device.clone(),
            gpu: facts.kind == ss_backend::DeviceKind::Hardware,
            arithmetic: engine.model.arithmetic().name().to_owned(),
            memory: loaded.memory,
            machine_bytes: loaded.machine_bytes,
            slots: loaded.slots,
            experts,
            ..EngineView::default()
        }));
        let mut looker =
            Looker { view: view.clone(), experts: geometry.experts, layers: geometry.layers.len(), last: None };
        looker.look(engine.model.store());
        engine.model.watch(Box::new(move |store| looker.glance(store)));
        RealEngine { engine, prefill_pass: loaded.prefill_pass, view }
    }

    /// The engine, to be put away.
    pub fn into_inner(self) -> ss_generate::Engine {
        self.engine
    }
}

/// Looks at the pool now and then, and writes what it sees on the view.
struct Looker {
    view: Arc<Mutex<EngineView>>,
    layers: usize,
    /// Experts of a layer.
    experts: u32,
    last: Option<Instant>,
}

impl Looker {
    fn glance(&mut self, store: &Store) {
        if self.last.is_none_or(|last| last.elapsed() >= LOOK) {
            self.look(store);
        }
    }

    fn look(&mut self, store: &Store) {
        self.last = Some(Instant::now());
        let counters = store.counters();
        let mut resident = vec![0; self.layers];
        for (id, _) in store.experts.table().residents() {
            if let Some(count) = resident.get_mut(id.layer as usize) {
                *count += 1;
            }
        }
        let layers = (0..).zip(resident);
        let mut view = self.view.lock();
        view.layers = layers.map(|(layer, resident)| LayerView { layer, resident, experts: self.experts }).collect();
        (view.hits, view.misses) = (counters.experts.hits, counters.experts.misses);
        // While a prompt is read, rows are counted elsewhere: what was counted once stays.
        view.disk_bytes = view.disk_bytes.max(counters.bytes_read());
        let waited = counters.experts.waited + counters.ngrams.waited;
        view.disk_wait_seconds = view.disk_wait_seconds.max(waited.as_secs_f64());
    }
}

/// Turns what an engine tells into pieces.
struct Teller<'w> {
    words: &'w ss_generate::Words,
    /// Whether likelihoods are told.
    wanted: bool,
}

impl Teller<'_> {
    fn piece(&self, told: Told) -> Piece {
        match told {
            Told::Prefilled { done, total } => Piece::Reading { done, total },
            Told::Prompt(tokens) => {
                // A character whose bytes lie in several tokens is the text of the last of them.
                let mut written = Detokenizer::new(self.words.tokenizer(), SpecialTokens::Keep);
                let tokens = tokens.into_iter();
                let mut told: Vec<Token> =
                    tokens.map(|told| self.token(told.id, written.push(told.id), told.logprob, &told.top)).collect();
                if let Some(last) = told.last_mut() {
                    last.text += &written.finish();
                }
                Piece::Prompt(told)
            }
            Told::Token(told) => {
                let logprob = told.logprob.filter(|_| self.wanted);
                Piece::Token(self.token(told.id, told.text, logprob, &told.top))
            }
            Told::Reply(event) => Piece::Event(event),
        }
    }

    fn token(&self, id: u32, text: String, logprob: Option<f32>, top: &[IdLogprob]) -> Token {
        let shown = |id: u32| {
            let bytes = self.words.tokenizer().bytes_of(id).to_vec();
            (String::from_utf8_lossy(&bytes).into_owned(), bytes)
        };
        let (_, bytes) = shown(id);
        let top = top.iter().map(|&(id, logprob)| {
            let (text, bytes) = shown(id);
            (text, bytes, logprob)
        });
        Token { id, text, bytes, logprob, top: top.collect() }
    }
}

fn outcome(summary: &Summary, limit: Option<u32>) -> Outcome {
    let output = summary.output.len() as u32;
    Outcome {
        ended: match summary.finish {
            Finish::Stop | Finish::Listener => Ended::Stop,
            Finish::Length if limit.is_some_and(|limit| output >= limit) => Ended::Limit,
            Finish::Length => Ended::Window,
            Finish::Repeated => Ended::Repeated,
            Finish::Cancelled => Ended::Cancelled,
        },
        prompt: summary.prompt_tokens,
        cached: 0,
        output,
        reasoning: summary.reasoning_tokens,
        prefill: summary.prefill,
        decode: summary.decode,
    }
}

impl Engine for RealEngine {
    fn answer(&mut self, job: Job, cancel: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal> {
        let limit = job.max_tokens;
        let words = self.engine.words().clone();
        let teller = Teller { words: &words, wanted: job.logprobs.is_some() };
        let ask = Ask {
            max_tokens: limit,
            reply: job.reply,
            prefill_pass: self.prefill_pass,
            window: Some(job.window),
            logprobs: job.logprobs,
            prompt_logprobs: job.prompt_logprobs,
            ..Ask::new(job.prompt, job.sampling)
        };
        let mut state = self.engine.model.new_state().map_err(|error| refusal(error.into()))?;
        let mut constraint = job.constraint;
        let bound = constraint.as_mut().map(|bound| bound.as_mut() as &mut dyn Constraint);
        let mut told = |told: Told| tell(teller.piece(told));
        let made = self.engine.answer_within(&mut state, &ask, bound, cancel, &mut told);
        made.map(|summary| outcome(&summary, limit)).map_err(refusal)
    }

    fn watch(&self) -> Watch {
        let view = self.view.clone();
        Arc::new(move || view.lock().clone())
    }
}
