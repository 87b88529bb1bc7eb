//! Owns: a server of a script that keeps what its engine was asked, and the two ways to ask it: whole and streamed.

use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::{Value, json};
use ss_generate::SamplerSettings;
use ss_model::Cancel;
use ss_text::ReplyOptions;

use super::rig::{Reply, Rig, WORDS, script};
use crate::engine::{Engine, Job, Outcome, Piece, Watch};
use crate::refusal::Refusal;
use crate::scripted::{Script, Scripted};

/// What came to the engine of a request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The prompt's text.
    pub prompt: String,
    /// Its ids.
    pub ids: Vec<u32>,
    /// How tokens are drawn.
    pub sampling: SamplerSettings,
    /// Most tokens of the reply.
    pub max_tokens: Option<u32>,
    /// Most tokens in all.
    pub window: u32,
    /// How the reply is read.
    pub reply: ReplyOptions,
    /// Whether the reply is held to rules.
    pub held: bool,
    /// Alternatives told of each token.
    pub logprobs: Option<u8>,
    /// Whether the prompt's likelihoods are told.
    pub prompt_logprobs: bool,
}

impl Seen {
    /// The same but for the seed, which is drawn afresh, in words.
    pub fn plain(mut self) -> String {
        self.sampling.seed = 0;
        format!("{self:?}")
    }
}

/// A scripted engine that keeps what it was asked.
struct Recorder {
    engine: Scripted,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Engine for Recorder {
    fn answer(&mut self, job: Job, cancel: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal> {
        self.seen.lock().push(Seen {
            prompt: WORDS.text_of(&job.prompt),
            ids: job.prompt.clone(),
            sampling: job.sampling.clone(),
            max_tokens: job.max_tokens,
            window: job.window,
            reply: job.reply.clone(),
            held: job.constraint.is_some(),
            logprobs: job.logprobs,
            prompt_logprobs: job.prompt_logprobs,
        });
        self.engine.answer(job, cancel, tell)
    }

    fn watch(&self) -> Watch {
        self.engine.watch()
    }
}

/// A server, and what came to its engine.
pub struct Bench {
    /// The server.
    pub rig: Rig,
    /// What came.
    pub seen: Arc<Mutex<Vec<Seen>>>,
}

/// The path of chat completions.
pub const CHAT: &str = "/v1/chat/completions";
/// The path of completions.
pub const TEXT: &str = "/v1/completions";

/// A user's message alone.
pub fn user(text: &str) -> Value {
    json!([{ "role": "user", "content": text }])
}

/// A function with these properties as a tool.
pub fn function(name: &str, properties: Value) -> Value {
    json!({ "type": "function", "function": { "name": name, "parameters": {
        "type": "object", "properties": properties } } })
}

/// A call as the model writes it.
pub fn written(name: &str, arguments: &[(&str, &str)]) -> String {
    let mut text = format!("<tool_call>\n<function={name}>\n");
    arguments.iter().for_each(|(key, value)| text += &format!("<parameter={key}>\n{value}\n</parameter>\n"));
    text + "</function>\n</tool_call>"
}

/// `base` with the fields of `more`.
pub fn with(mut base: Value, more: &Value) -> Value {
    base.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    base
}

impl Bench {
    /// A server with one reply.
    pub fn saying(text: &str) -> Self {
        Self::with(script(json!([{ "text": text }])))
    }

    /// A server whose tokens are so many bytes long.
    pub fn cutting(text: &str, bytes: usize) -> Self {
        Self::with(Script { token_bytes: Some(bytes), ..script(json!([{ "text": text }])) })
    }

    /// A server with a script.
    pub fn with(script: Script) -> Self {
        let seen: Arc<Mutex<Vec<Seen>>> = Arc::default();
        let engine = Recorder { engine: Scripted::new(script, WORDS.clone()), seen: seen.clone() };
        Bench { rig: Rig::start(Box::new(engine), Default::default()), seen }
    }

    /// Asks a question with these fields.
    pub fn ask(&self, more: &Value) -> Reply {
        self.rig.post(CHAT, &with(json!({ "messages": user("hi") }), more))
    }

    /// The same, answered; gives the answer.
    pub fn answer(&self, more: &Value) -> Value {
        let reply = self.ask(more);
        assert_eq!(reply.status, 200, "{more}: {}", reply.text());
        reply.json()
    }

    /// The same; gives what came to the engine.
    pub fn job(&self, more: &Value) -> Seen {
        self.answer(more);
        self.seen.lock().pop().unwrap()
    }

    /// Continues a text with these fields; gives the answer and what came to the engine.
    pub fn text(&self, more: &Value) -> (Value, Seen) {
        let reply = self.rig.post(TEXT, &with(json!({ "prompt": "Once" }), more));
        assert_eq!(reply.status, 200, "{more}: {}", reply.text());
        (reply.json(), self.seen.lock().pop().unwrap())
    }

    /// Asks what is refused with a 400: in this API's form, naming this field; the engine never hears of it.
    pub fn refused(&self, path: &str, body: &Value, field: &str) -> String {
        let before = self.seen.lock().len();
        let reply = self.rig.post(path, body);
        assert_eq!(reply.status, 400, "{body}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/json"));
        let error = reply.json()["error"].clone();
        assert_eq!(
            (&error["type"], error["param"].as_str()),
            (&json!("invalid_request_error"), Some(field)),
            "{error}"
        );
        assert_eq!(self.seen.lock().len(), before, "{body} came to the engine");
        error["message"].as_str().unwrap().to_owned()
    }

    /// Asks a question with fields of which this one is refused.
    pub fn refused_chat(&self, more: &Value, field: &str) -> String {
        self.refused(CHAT, &with(json!({ "messages": user("hi") }), more), field)
    }

    /// Whether the next ordinary request is answered, and nothing is left behind.
    pub fn is_well(&self) -> bool {
        self.ask(&json!({})).status == 200 && self.rig.settles(std::time::Duration::from_secs(5))
    }
}

/// A streamed chat, joined.
#[derive(Clone, Debug, Default)]
pub struct Joined {
    /// The answer.
    pub content: String,
    /// The thoughts.
    pub reasoning: String,
    /// Calls: name and arguments.
    pub calls: Vec<(String, String)>,
    /// Why it ended.
    pub finish: Vec<String>,
    /// Likelihoods told.
    pub logprobs: Vec<Value>,
    /// All chunks.
    pub chunks: Vec<Value>,
    /// Whether `[DONE]` came last.
    pub done: bool,
}

impl Joined {
    /// Reads a stream of chunks and checks its form.
    pub fn read(reply: &Reply) -> Self {
        assert_eq!(reply.status, 200, "{}", reply.text());
        assert_eq!(reply.header("content-type"), Some("text/event-stream; charset=utf-8"));
        assert_eq!(reply.header("cache-control"), Some("no-cache"));
        let mut joined = Joined { chunks: reply.data(), ..Joined::default() };
        joined.done = reply.events().last().is_some_and(|(_, data)| data == "[DONE]");
        let chunks = joined.chunks.clone();
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        for chunk in chunks.iter().filter(|chunk| chunk.get("error").is_none()) {
            let same = |name: &str| chunk[name] == chunks[0][name];
            assert!(same("id") && same("created") && same("model"), "{chunk}");
            assert_eq!(chunk["object"], "chat.completion.chunk");
            chunk["choices"].as_array().unwrap().iter().for_each(|choice| joined.add(choice));
        }
        joined
    }

    fn add(&mut self, choice: &Value) {
        let delta = &choice["delta"];
        self.content += delta["content"].as_str().unwrap_or_default();
        self.reasoning += delta["reasoning_content"].as_str().unwrap_or_default();
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = call["index"].as_u64().unwrap() as usize;
            if let Some(name) = call["function"]["name"].as_str() {
                assert_eq!(index, self.calls.len());
                assert!(call["id"].as_str().is_some_and(|id| id.starts_with("call_") && id.len() == 37), "{call}");
                assert_eq!((&call["type"], &call["function"]["arguments"]), (&json!("function"), &json!("")));
                self.calls.push((name.to_owned(), String::new()));
            } else {
                self.calls[index].1 += call["function"]["arguments"].as_str().unwrap();
            }
        }
        self.finish.extend(choice["finish_reason"].as_str().map(str::to_owned));
        self.logprobs.extend(choice["logprobs"]["content"].as_array().into_iter().flatten().cloned());
    }
}

/// Asks whole and streamed; checks that both say the same, and gives the whole answer's choice.
pub fn both(rig: &Rig, body: &Value) -> (Value, Joined) {
    let whole = rig.post(CHAT, body);
    assert_eq!(whole.status, 200, "{body}: {}", whole.text());
    let choice = whole.json()["choices"][0].clone();
    let joined = Joined::read(&rig.post(CHAT, &with(body.clone(), &json!({ "stream": true }))));
    let message = &choice["message"];
    assert_eq!(joined.content, message["content"].as_str().unwrap_or_default());
    assert_eq!(joined.reasoning, message["reasoning_content"].as_str().unwrap_or_default());
    let calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let calls: Vec<_> =
        calls.iter().map(|call| (text(&call["function"]["name"]), text(&call["function"]["arguments"]))).collect();
    assert_eq!(joined.calls, calls);
    assert_eq!(joined.finish, [choice["finish_reason"].as_str().unwrap()]);
    assert_eq!(joined.logprobs, choice["logprobs"]["content"].as_array().cloned().unwrap_or_default());
    assert!(joined.done);
    (choice, joined)
}
