//! Owns: the forms of a reply in Ollama's API, whole and line by line, of chat and of generate (server.md section 10).
//! Invariants: a call is given whole or not at all; the last object alone says `done`, and has every count; after a failure
//! no object says it.

use std::time::{Instant, SystemTime};

use serde_json::{Map, Value, json};
use ss_text::Event;

use super::settings;
use crate::api::common::{Object, text};
use crate::app::{fresh_id, rfc3339};
use crate::engine::{Outcome, Piece};
use crate::flow::{self, Dialect, Made, Start, Watched};
use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::http::stream::{NDJSON, Writer, line};
use crate::refusal::{Family, Refusal};
use crate::request::Generation;
use crate::shape::Fields;

/// Which of the two forms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Words stand in `message`.
    Chat,
    /// Words stand in `response`.
    Generate,
}

/// What is said in an object.
#[derive(Default)]
struct Said {
    text: String,
    thinking: String,
    calls: Vec<Value>,
}

impl Form {
    /// An object with these words.
    fn object(self, model: &str, said: Said) -> Value {
        let Said { text, thinking, calls } = said;
        let mut object = json!({ "model": model, "created_at": rfc3339(SystemTime::now()) });
        match self {
            Form::Chat => {
                let mut message = json!({ "role": "assistant", "content": text });
                if !thinking.is_empty() {
                    message["thinking"] = json!(thinking);
                }
                if !calls.is_empty() {
                    message["tool_calls"] = json!(calls);
                }
                object["message"] = message;
            }
            Form::Generate => {
                object["response"] = json!(text);
                if !thinking.is_empty() {
                    object["thinking"] = json!(thinking);
                }
            }
        }
        object["done"] = json!(false);
        object
    }

    /// The answer to a request that only loads or unloads; the model stays where it is.
    pub fn loaded(self, model: &str, reason: &str, stream: bool) -> Answer {
        let mut object = self.object(model, Said::default());
        object["done"] = json!(true);
        object["done_reason"] = json!(reason);
        if !stream {
            return Answer::from(object);
        }
        let mut out = Vec::new();
        line(&mut out, &object.to_string());
        Answer::whole(NDJSON, out)
    }
}

/// The forms of a reply.
struct Ollama {
    /// Which of the two.
    form: Form,
    /// When the request came.
    since: Instant,
}

/// Answers a request, or says that the model is loaded where there is nothing to answer.
///
/// # Errors
/// Those of the body's table, of a model that is not there, and of what `generation` refuses.
pub async fn answer(call: Call, form: Form, body: &Fields, generation: Read) -> Result<Answer, Refusal> {
    let since = Instant::now();
    let fields = call.fields(body)?;
    call.app.check_model(text(&fields, "model"), Family::Ollama)?;
    let kept = settings::keep_alive(&fields)?;
    let stream = settings::streams(&fields);
    match generation(&fields, call.core.words.facts().window)? {
        Some(generation) => flow::reply(call, generation, Box::new(Ollama { form, since }), stream).await,
        None => {
            let reason = if kept == Some(0.0) { "unload" } else { "load" };
            Ok(form.loaded(&call.app.settings.model, reason, stream))
        }
    }
}

/// Reads a request from its fields, for a window of so many tokens; none where there is nothing to answer.
pub type Read = fn(&Object, u32) -> Result<Option<Generation>, Refusal>;

impl Dialect for Ollama {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        let Made { start, reply, outcome, .. } = made;
        let complete = reply.calls.iter().filter(|call| call.complete).enumerate();
        let calls = complete.map(|(index, made)| call(index, &made.name, &made.arguments)).collect::<Result<_, _>>()?;
        let said = Said { text: reply.text, thinking: reply.reasoning, calls };
        let mut object = self.form.object(&start.model, said);
        finish(&mut object, &outcome, self.since);
        Ok(object)
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(Lines { form: self.form, since: self.since, watched: Watched::new(start), unreadable: None })
    }
}

/// A call as a client reads it.
fn call(index: usize, name: &str, arguments: &str) -> Result<Value, Refusal> {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).map_err(|error| {
        Refusal::inference(format!(
            "the model's reply cannot be used: the arguments of `{name}` are no object: {error}"
        ))
    })?;
    Ok(json!({ "id": fresh_id("call_"), "function": { "index": index, "name": name, "arguments": arguments } }))
}

/// Makes an object the last one.
fn finish(object: &mut Value, outcome: &Outcome, since: Instant) {
    object["done"] = json!(true);
    object["done_reason"] = json!(if outcome.ended.is_cut() { "length" } else { "stop" });
    let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    object["total_duration"] = json!(nanoseconds(since.elapsed()));
    // The model was there before the request.
    object["load_duration"] = json!(0);
    object["prompt_eval_count"] = json!(outcome.prompt);
    object["prompt_eval_duration"] = json!(nanoseconds(outcome.prefill));
    object["eval_count"] = json!(outcome.output);
    object["eval_duration"] = json!(nanoseconds(outcome.decode));
}

/// The lines of a streamed reply.
struct Lines {
    form: Form,
    since: Instant,
    watched: Watched,
    /// Why a call that the model closed cannot be given.
    unreadable: Option<Refusal>,
}

impl Lines {
    fn say(&self, said: Said, out: &mut Vec<u8>) {
        line(out, &self.form.object(&self.watched.start.model, said).to_string());
    }
}

impl Writer for Lines {
    fn kind(&self) -> &'static str {
        NDJSON
    }

    fn begin(&mut self, _out: &mut Vec<u8>) {}

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        let Piece::Event(told) = piece else { return };
        // Calls are numbered as the complete ones come.
        let index = self.watched.calls();
        self.watched.see(&told);
        match told {
            Event::Reasoning(thinking) => self.say(Said { thinking, ..Said::default() }, out),
            Event::Text(text) => self.say(Said { text, ..Said::default() }, out),
            Event::CallEnd { name, arguments, .. } => match call(index, &name, &arguments) {
                Ok(call) => self.say(Said { calls: vec![call], ..Said::default() }, out),
                Err(refusal) => self.unreadable = Some(refusal),
            },
            Event::CallStart { .. } | Event::CallArguments { .. } | Event::Stop(_) | Event::Failed(_) => {}
        }
    }

    fn quiet(&mut self, _out: &mut Vec<u8>) {}

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let Err(refusal) = self.unreadable.take().map_or_else(|| self.watched.check(outcome), Err) {
            return self.fail(&refusal, out);
        }
        let mut object = self.form.object(&self.watched.start.model, Said::default());
        finish(&mut object, outcome, self.since);
        line(out, &object.to_string());
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        let mut error = Family::Ollama.error(refusal);
        error["code"] = json!(refusal.code.name());
        line(out, &error.to_string());
    }
}
