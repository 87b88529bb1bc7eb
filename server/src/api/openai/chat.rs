//! Owns: `POST /v1/chat/completions` (server.md section 6): its fields, its messages, its two forms of a reply.
//! Invariants: a declared string argument is streamed while it is written; a call that was cut is never presented as whole.

use serde_json::{Value, json};
use ss_text::Event;
use warp::http::Method;

use super::fields::{self, BIAS, FUNCTION, POSITIVE, RESPONSE_FORMAT, STREAM_OPTIONS, TOP};
use crate::Thinking;
use crate::api::common::{self, Object, arguments, flag, list, number, sampling, text, texts, tokens};
use crate::app::fresh_id;
use crate::conversation::{CallResult, Conversation, MadeCall, Said};
use crate::engine::{Ended, Outcome, Piece, Token};
use crate::flow::{self, Dialect, Made, Start, Watched};
use crate::http::answer::Answer;
use crate::http::route::{Call, Route};
use crate::http::stream::{SSE, Writer, comment, event};
use crate::refusal::{Family, Refusal};
use crate::request::{Generation, Input, ToolChoice};
use crate::shape::{ANY_WHOLE, Field, Fields, Kind, TEXT_OR_TEXTS};

/// The endpoint.
pub const ROUTE: Route = Route {
    method: Method::POST,
    path: "/v1/chat/completions",
    about: "Continues a conversation, as OpenAI's chat completions do.",
    body: Some(&BODY),
    reply: Kind::Object(&REPLY),
    handler: |call| Box::pin(answer(call)),
};

/// The fields of its body.
pub const ROUTE_BODY: &Fields = &BODY;

const TEXT_PART: Fields = Fields::strict(
    "TextPart",
    &[
        Field::required("type", Kind::Choice(&["text", "input_text", "output_text"]), "What it is."),
        Field::required("text", Kind::Text, "The text."),
        Field::inert("annotations", Kind::List(&Kind::Anything)),
        Field::inert("cache_control", Kind::Map),
    ],
);

const REFUSAL_PART: Fields = Fields::strict(
    "RefusalPart",
    &[
        Field::required("type", Kind::Choice(&["refusal"]), "What the assistant said instead of an answer."),
        Field::required("refusal", Kind::Text, "The text."),
    ],
);

const PICTURE_PART: Fields = Fields::open(
    "PicturePart",
    &[Field::required("type", Kind::Choice(&["image_url", "image", "input_image"]), "A picture, which is refused.")],
);

const CONTENT: Kind = Kind::Either(&[
    Kind::Text,
    Kind::List(&Kind::Tagged(&[
        ("text", &TEXT_PART),
        ("input_text", &TEXT_PART),
        ("output_text", &TEXT_PART),
        ("refusal", &REFUSAL_PART),
        ("image_url", &PICTURE_PART),
        ("image", &PICTURE_PART),
        ("input_image", &PICTURE_PART),
    ])),
]);

const CALLED: Fields = Fields::strict(
    "CalledFunction",
    &[
        Field::required("name", Kind::Text, "The function."),
        Field::new("arguments", Kind::Text, "Its arguments, a JSON object as text; empty is `{}`."),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const TOOL_CALL: Fields = Fields::strict(
    "ToolCall",
    &[
        Field::new("id", Kind::Text, "The call's id."),
        Field::new("type", Kind::Only("\"function\""), "Its type."),
        Field::required("function", Kind::Object(&CALLED), "What was called."),
        Field::inert("index", ANY_WHOLE),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const MESSAGE: Fields = Fields::strict(
    "Message",
    &[
        Field::required("role", Kind::Choice(&["system", "developer", "user", "assistant", "tool"]), "Who speaks."),
        Field::new("content", CONTENT, "What is said: a text or parts."),
        Field::new("name", Kind::Text, "On a tool's message: the function, as in its call."),
        Field::new("tool_calls", Kind::List(&Kind::Object(&TOOL_CALL)), "On the assistant's: calls that it made."),
        Field::new("tool_call_id", Kind::Text, "On a tool's message: the call that it answers."),
        Field::new("reasoning_content", Kind::Text, "On the assistant's: its thoughts."),
        Field::new("reasoning", Kind::Text, "The same by another name."),
        Field::inert("refusal", Kind::Only("null")),
        Field::inert("audio", Kind::Only("null")),
        Field::inert("function_call", Kind::Only("null")),
        Field::inert("annotations", Kind::List(&Kind::Anything)),
        Field::inert("provider_specific_fields", Kind::Map),
    ],
);

const TOOL: Fields = Fields::strict(
    "Tool",
    &[
        Field::required("type", Kind::Only("\"function\""), "Its type."),
        Field::required("function", Kind::Object(&FUNCTION), "The function."),
    ],
);

const NAMED: Fields = Fields::strict(
    "NamedTool",
    &[
        Field::required("type", Kind::Only("\"function\""), "Its type."),
        Field::required(
            "function",
            Kind::Object(&Fields::strict("FunctionName", &[Field::required("name", Kind::Text, "Its name.")])),
            "The function.",
        ),
    ],
);

const OPTIONS: Fields = Fields::strict(
    "WindowOption",
    &[Field::new("num_ctx", Kind::Whole(1, i128::MAX), "Most tokens of prompt and reply, up to the model's window.")],
);

const TEMPLATE: Fields = Fields::strict(
    "TemplateOptions",
    &[
        Field::new("enable_thinking", Kind::Flag, "Whether the model thinks first."),
        Field::new("reasoning_effort", Kind::Text, "How hard."),
        Field::new("preserve_thinking", Kind::Flag, "Whether earlier thoughts stay in the prompt."),
    ],
);

const BODY: Fields = Fields::strict(
    "ChatCompletionRequest",
    &[
        Field::new("model", Kind::Text, "The model's name; left out, it is the one that there is."),
        Field::required("messages", Kind::List(&Kind::Object(&MESSAGE)), "The conversation."),
        Field::new("stream", Kind::Flag, "Whether the reply comes in pieces."),
        Field::new("stream_options", Kind::Object(&STREAM_OPTIONS), "What a stream tells at its end."),
        common::TEMPERATURE,
        common::TOP_P,
        common::TOP_K,
        common::MIN_P,
        common::PRESENCE,
        common::FREQUENCY,
        Field::new("repetition_penalty", Kind::Real(0.5, 2.0), "Divides the logits of tokens seen before; 1 is off."),
        Field::new("logit_bias", BIAS, "Token ids, and what is added to their logits, -100 to 100."),
        common::SEED,
        Field::new("max_tokens", POSITIVE, "Most tokens of the reply."),
        Field::new("max_completion_tokens", POSITIVE, "The same; it wins."),
        Field::new("stop", TEXT_OR_TEXTS, "Strings that end the answer; they are left out of it."),
        Field::new("logprobs", Kind::Flag, "Whether each token's likelihood is told."),
        Field::new("top_logprobs", TOP, "How many alternatives are told with it."),
        Field::new("response_format", Kind::Object(&RESPONSE_FORMAT), "What the answer must be; it is enforced."),
        Field::new("tools", Kind::List(&Kind::Object(&TOOL)), "Functions that the model may call."),
        Field::new(
            "tool_choice",
            Kind::Either(&[Kind::Choice(&["auto", "none", "required"]), Kind::Object(&NAMED)]),
            "Whether it calls one.",
        ),
        Field::new("parallel_tool_calls", Kind::Flag, "Whether it may call several."),
        Field::new("reasoning_effort", Kind::Text, "How hard the model thinks: none, low, medium, high, xhigh or max."),
        Field::new("think", Kind::Flag, "Whether the model thinks first."),
        Field::new("chat_template_kwargs", Kind::Object(&TEMPLATE), "Variables of the chat template."),
        Field::new("options", Kind::Object(&OPTIONS), "A smaller window."),
        Field::inert("n", Kind::Only("1")),
        Field::inert("best_of", Kind::Only("1")),
        Field::inert("store", Kind::Only("false")),
        Field::inert("modalities", Kind::Only("[\"text\"]")),
        Field::inert("prediction", Kind::Only("null")),
        Field::inert("user", Kind::Text),
        Field::inert("metadata", Kind::Map),
        Field::inert("prompt_cache_key", Kind::Text),
        Field::inert("prompt_cache_retention", Kind::Text),
        Field::inert("safety_identifier", Kind::Text),
        Field::inert("service_tier", Kind::Text),
        Field::inert("verbosity", Kind::Text),
        Field::inert("cache_prompt", Kind::Flag),
    ],
);

/// A reply, whole.
pub const REPLY: Fields = Fields::open(
    "ChatCompletion",
    &[
        Field::required("id", Kind::Text, "`chatcmpl-` and 32 digits."),
        Field::required("object", Kind::Only("\"chat.completion\""), ""),
        Field::required("created", ANY_WHOLE, "Seconds since 1970."),
        Field::required("model", Kind::Text, "The model."),
        Field::required("choices", Kind::List(&Kind::Map), "The reply, one."),
        Field::required("usage", Kind::Map, "Tokens used."),
    ],
);

async fn answer(call: Call) -> Result<Answer, Refusal> {
    let fields = call.fields(&BODY)?;
    call.app.check_model(text(&fields, "model"), Family::OpenAi)?;
    let generation = generation(&fields, call.core.words.facts().window)?;
    let usage =
        fields.get("stream_options").and_then(Value::as_object).is_some_and(|options| flag(options, "include_usage"));
    let chat = Chat { usage, logprobs: generation.logprobs.is_some() };
    flow::reply(call, generation, Box::new(chat), flag(&fields, "stream")).await
}

/// The request as the server sees it.
///
/// # Errors
/// Names the field that is wrong.
pub fn generation(fields: &Object, window: u32) -> Result<Generation, Refusal> {
    let mut generation = Generation::new(Input::Chat(messages(fields)?));
    generation.sampling = sampling(fields, "repetition_penalty");
    generation.sampling.logit_bias = fields::bias(fields);
    generation.max_tokens = tokens(fields, "max_completion_tokens").or(tokens(fields, "max_tokens"));
    generation.stops = texts(fields, "stop");
    generation.format = fields::format(fields)?;
    generation.logprobs = logprobs(fields)?;
    let tools = list(fields, "tools").iter().filter_map(|tool| tool["function"].as_object());
    generation.tools = tools.map(fields::tool).collect();
    generation.choice = choice(fields);
    generation.parallel = fields.get("parallel_tool_calls").and_then(Value::as_bool).unwrap_or(true);
    generation.thinking = thinking(fields)?;
    if let Some(kept) = fields.get("chat_template_kwargs").and_then(|kwargs| kwargs.get("preserve_thinking")) {
        generation.variables.insert("preserve_thinking".to_owned(), kept.clone());
    }
    if let Some(options) = fields.get("options").and_then(Value::as_object) {
        generation.window = common::window(options, "options.num_ctx", window)?;
    }
    Ok(generation)
}

fn logprobs(fields: &Object) -> Result<Option<u8>, Refusal> {
    let top = number(fields, "top_logprobs").and_then(|top| u8::try_from(top).ok());
    match (flag(fields, "logprobs"), top) {
        (true, top) => Ok(Some(top.unwrap_or(0))),
        (false, None | Some(0)) => Ok(None),
        (false, Some(_)) => Err(Refusal::field("top_logprobs", "`top_logprobs` needs `logprobs` to be true")),
    }
}

fn choice(fields: &Object) -> ToolChoice {
    match fields.get("tool_choice") {
        Some(Value::String(word)) if word == "none" => ToolChoice::None,
        Some(Value::String(word)) if word == "required" => ToolChoice::Required,
        Some(Value::Object(named)) => {
            ToolChoice::Named(named["function"]["name"].as_str().unwrap_or_default().to_owned())
        }
        _ => ToolChoice::Auto,
    }
}

/// Whether the model thinks, by whichever of the fields says so; they must agree.
fn thinking(fields: &Object) -> Result<Thinking, Refusal> {
    let kwargs = fields.get("chat_template_kwargs").and_then(Value::as_object);
    let effort = |object: Option<&Object>, path: &str| -> Result<Option<Thinking>, Refusal> {
        let label = object.and_then(|object| text(object, "reasoning_effort"));
        let parsed: Result<Option<Thinking>, _> = label.map(str::parse).transpose();
        parsed.map_err(|error| Refusal::field(path, format!("`{path}`: {error}")))
    };
    let contradiction = |field: &str, other: &str| {
        Refusal::field(field, format!("`{field}` and `{other}` contradict each other: send one of them"))
    };
    const EFFORT: &str = "reasoning_effort";
    const INNER: &str = "chat_template_kwargs.reasoning_effort";
    let mut asked = effort(Some(fields), EFFORT)?.map(|thinking| (thinking, EFFORT));
    if let Some(inner) = effort(kwargs, INNER)? {
        match asked {
            Some((thinking, by)) if thinking != inner => return Err(contradiction(INNER, by)),
            _ => asked = Some((inner, INNER)),
        }
    }
    let enable = kwargs.and_then(|kwargs| kwargs.get("enable_thinking"));
    for (flag, name) in [(fields.get("think"), "think"), (enable, "chat_template_kwargs.enable_thinking")] {
        let Some(on) = flag.and_then(Value::as_bool) else { continue };
        match asked {
            Some((thinking, by)) if thinking.is_on() != on => return Err(contradiction(by, name)),
            Some(_) => {}
            None => asked = Some((if on { Thinking::On(None) } else { Thinking::Off }, name)),
        }
    }
    Ok(asked.map(|(thinking, _)| thinking).unwrap_or_default())
}

/// The conversation.
fn messages(fields: &Object) -> Result<Vec<Value>, Refusal> {
    let mut talk = Conversation::default();
    for (index, message) in list(fields, "messages").iter().enumerate() {
        let path = format!("messages[{index}]");
        let Some(message) = message.as_object() else { continue };
        read_message(&mut talk, message, &path)?;
    }
    talk.finish("messages")
}

fn read_message(talk: &mut Conversation, message: &Object, path: &str) -> Result<(), Refusal> {
    let role = text(message, "role").unwrap_or_default();
    check_fields(message, role, path)?;
    let content = content(message, path)?;
    let needs = |content: Option<String>| {
        content.ok_or_else(|| Refusal::field(path, format!("`{path}.content` is missing: it must be a text or parts")))
    };
    match role {
        "system" | "developer" => talk.system(needs(content)?, path),
        "user" => talk.user(needs(content)?, path),
        "tool" => {
            let id = text(message, "tool_call_id").map(str::to_owned);
            if id.is_none() {
                return Err(Refusal::field(
                    path,
                    format!("`{path}.tool_call_id` is missing: it names the call that is answered"),
                ));
            }
            let name = text(message, "name").map(str::to_owned);
            talk.result(CallResult { id, name, text: needs(content)? }, path)
        }
        _ => {
            let reasoning = match (text(message, "reasoning_content"), text(message, "reasoning")) {
                (Some(_), Some(_)) => {
                    return Err(Refusal::field(
                        path,
                        format!("`{path}` has both `reasoning_content` and `reasoning`: send one"),
                    ));
                }
                (one, other) => one.or(other).unwrap_or_default().to_owned(),
            };
            let calls = list(message, "tool_calls").iter().enumerate();
            let calls = calls
                .map(|(at, call)| made_call(call, &format!("{path}.tool_calls[{at}]")))
                .collect::<Result<_, _>>()?;
            talk.assistant(Said { reasoning, text: content.unwrap_or_default(), calls }, path)
        }
    }
}

/// Fields belong to certain roles.
fn check_fields(message: &Object, role: &str, path: &str) -> Result<(), Refusal> {
    let belongs = |name: &str| match name {
        // An assistant's name is a label of frameworks that changes nothing.
        "name" => role == "tool" || role == "assistant",
        "tool_call_id" => role == "tool",
        "tool_calls" | "reasoning_content" | "reasoning" => role == "assistant",
        _ => true,
    };
    let wrong = message.keys().find(|name| !belongs(name));
    match wrong {
        Some(name) => {
            let path = format!("{path}.{name}");
            Err(Refusal::field(&path, format!("`{path}` does not belong on a message of `{role}`: leave it out")))
        }
        None => Ok(()),
    }
}

fn made_call(call: &Value, path: &str) -> Result<MadeCall, Refusal> {
    let function = &call["function"];
    Ok(MadeCall {
        id: call["id"].as_str().map(str::to_owned),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: arguments(
            function["arguments"].as_str().unwrap_or_default(),
            &format!("{path}.function.arguments"),
        )?,
    })
}

/// A message's text; parts are joined without a separator.
fn content(message: &Object, path: &str) -> Result<Option<String>, Refusal> {
    match message.get("content") {
        Some(Value::Array(parts)) => {
            let mut joined = String::new();
            for (index, part) in parts.iter().enumerate() {
                let path = format!("{path}.content[{index}]");
                match part["type"].as_str().unwrap_or_default() {
                    "text" | "input_text" | "output_text" => joined += part["text"].as_str().unwrap_or_default(),
                    "refusal" => joined += part["refusal"].as_str().unwrap_or_default(),
                    _ => return Err(common::no_pictures(&path)),
                }
            }
            Ok(Some(joined))
        }
        Some(Value::String(text)) => Ok(Some(text.clone())),
        _ => Ok(None),
    }
}

/// The forms of a reply.
struct Chat {
    usage: bool,
    logprobs: bool,
}

/// Why a reply ended, as OpenAI says it.
pub fn finish_reason(outcome: &Outcome, complete_calls: usize) -> &'static str {
    match outcome.ended {
        Ended::Limit | Ended::Window | Ended::Repeated => "length",
        _ if complete_calls > 0 => "tool_calls",
        _ => "stop",
    }
}

impl Dialect for Chat {
    fn whole(&self, made: Made) -> Result<Value, Refusal> {
        let Made { start, reply, tokens, outcome, .. } = made;
        let complete = reply.calls.iter().filter(|call| call.complete).count();
        let call = |call: &ss_text::Call| json!({ "id": fresh_id("call_"), "type": "function", "function": { "name": call.name, "arguments": call.arguments } });
        let calls: Vec<Value> = reply.calls.iter().map(call).collect();
        let content = if reply.text.is_empty() && !calls.is_empty() { Value::Null } else { json!(reply.text) };
        let mut message = json!({ "role": "assistant", "content": content });
        if !reply.reasoning.is_empty() {
            message["reasoning_content"] = json!(reply.reasoning);
        }
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let logprobs =
            if self.logprobs { json!({ "content": fields::logprobs(&tokens), "refusal": null }) } else { Value::Null };
        Ok(json!({
            "id": fresh_id("chatcmpl-"),
            "object": "chat.completion",
            "created": start.created,
            "model": start.model,
            "choices": [{
                "index": 0,
                "message": message,
                "finish_reason": finish_reason(&outcome, complete),
                "logprobs": logprobs,
            }],
            "usage": fields::usage(&outcome),
        }))
    }

    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer> {
        Box::new(Chunks {
            id: fresh_id("chatcmpl-"),
            usage: self.usage,
            watched: Watched::new(start),
            tokens: Vec::new(),
            read: (0, 0),
        })
    }
}

/// The chunks of a streamed reply.
struct Chunks {
    id: String,
    usage: bool,
    watched: Watched,
    /// Tokens whose likelihood is still to be told.
    tokens: Vec<Token>,
    /// Prompt tokens read, of how many.
    read: (usize, usize),
}

impl Chunks {
    fn chunk(&self, choices: Value, usage: Value, out: &mut Vec<u8>) {
        let start = &self.watched.start;
        let mut chunk = json!({
            "id": self.id,
            "object": "chat.completion.chunk",
            "created": start.created,
            "model": start.model,
            "choices": choices,
        });
        if self.usage {
            chunk["usage"] = usage;
        }
        event(out, None, &chunk.to_string());
    }

    fn delta(&mut self, delta: Value, finish: Option<&str>, out: &mut Vec<u8>) {
        let tokens = std::mem::take(&mut self.tokens);
        let wanted = tokens.iter().any(|token| token.logprob.is_some());
        let logprobs =
            if wanted { json!({ "content": fields::logprobs(&tokens), "refusal": null }) } else { Value::Null };
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": finish, "logprobs": logprobs });
        self.chunk(json!([choice]), Value::Null, out);
    }
}

impl Writer for Chunks {
    fn kind(&self) -> &'static str {
        SSE
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        self.delta(json!({ "role": "assistant", "content": "" }), None, out);
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        let told = match piece {
            Piece::Reading { done, total } => return self.read = (done, total),
            Piece::Prompt(_) => return,
            Piece::Token(token) if token.logprob.is_some() => return self.tokens.push(token),
            Piece::Token(_) => return,
            Piece::Event(told) => told,
        };
        self.watched.see(&told);
        let delta = match told {
            Event::Reasoning(text) => json!({ "reasoning_content": text }),
            Event::Text(text) => json!({ "content": text }),
            Event::CallStart { index, name } => {
                let function = json!({ "name": name, "arguments": "" });
                json!({ "tool_calls": [{ "index": index, "id": fresh_id("call_"), "type": "function", "function": function }] })
            }
            Event::CallArguments { index, json } => {
                json!({ "tool_calls": [{ "index": index, "function": { "arguments": json } }] })
            }
            Event::CallEnd { .. } | Event::Stop(_) | Event::Failed(_) => return,
        };
        self.delta(delta, None, out);
    }

    fn quiet(&mut self, out: &mut Vec<u8>) {
        match self.read {
            (done, total) if done < total => comment(out, &format!("keepalive: {done} of {total} prompt tokens read")),
            _ => comment(out, "keepalive"),
        }
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        if let Err(refusal) = self.watched.check(outcome) {
            return self.fail(&refusal, out);
        }
        self.delta(json!({}), Some(finish_reason(outcome, self.watched.calls())), out);
        if self.usage {
            self.chunk(json!([]), fields::usage(outcome), out);
        }
        event(out, None, "[DONE]");
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        event(out, None, &Family::OpenAi.error(refusal).to_string());
    }
}
