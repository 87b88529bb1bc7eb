//! Owns: from a request to a job: the prompt's ids, the sampler's settings, the rules of the reply, the limits (server.md
//! sections 5, 6 and 11).
//! Refuses: prompts that leave no room, tools that cannot be called, stop strings over the limits.
//! Invariants: whatever can be refused is refused here, before a place in the queue is taken; nothing here waits for the engine.

use ss_generate::Chat;
use ss_text::{MAX_STOP_BYTES, MAX_STOPS, ReplyOptions, ToolSchemas};

use crate::conversation::instruct;
use crate::engine::{Job, Rules, Words};
use crate::refusal::Refusal;
use crate::request::{Format, Generation, Input, Tool, ToolChoice};
use crate::sampling::Column;

/// A job with what its reply is told by.
pub struct Prepared {
    /// The job.
    pub job: Job,
    /// Room for the reply in the window, in tokens.
    pub room: u32,
}

/// Ids of what a request is made to.
///
/// # Errors
/// When the template refuses it, or it cannot fit the window.
pub fn prompt_ids(generation: &Generation, words: &dyn Words) -> Result<Vec<u32>, Refusal> {
    match &generation.input {
        Input::Chat(_) => words.chat_ids(&chat(generation)?),
        Input::Text(text) => words.text_ids(text),
        Input::Ids(ids) => {
            let vocabulary = words.facts().vocabulary;
            match ids.iter().find(|&&id| id >= vocabulary) {
                Some(id) => Err(Refusal::field(
                    "prompt",
                    format!("`prompt` holds the id {id}: this model's ids are 0 to {}", vocabulary.saturating_sub(1)),
                )),
                None => Ok(ids.clone()),
            }
        }
    }
}

/// The conversation as the template gets it.
///
/// # Errors
/// When the request is no conversation.
pub fn chat(generation: &Generation) -> Result<Chat, Refusal> {
    let Input::Chat(messages) = &generation.input else {
        return Err(Refusal::field("messages", "this needs a conversation"));
    };
    let mut messages = messages.clone();
    if generation.shows_tools() {
        match &generation.choice {
            ToolChoice::Required => instruct(&mut messages, "You must call one of the available tools now."),
            ToolChoice::Named(name) => instruct(&mut messages, &format!("You must call the {name} tool now.")),
            ToolChoice::Auto | ToolChoice::None => {}
        }
        if !generation.parallel {
            instruct(&mut messages, "Call at most one tool in this response.");
        }
    }
    let mut options = generation.thinking.template_options();
    options.extend(generation.variables.clone());
    let tools =
        if generation.shows_tools() { generation.tools.iter().map(Tool::rendered).collect() } else { Vec::new() };
    Ok(Chat { messages, tools, options })
}

/// Makes a job of a request.
///
/// # Errors
/// When anything about it cannot be done.
pub fn prepare(generation: &Generation, words: &dyn Words) -> Result<Prepared, Refusal> {
    check_tools(generation)?;
    check_stops(&generation.stops, "stop")?;
    let facts = words.facts();
    check_bias(generation, facts.vocabulary)?;
    let prompt = prompt_ids(generation, words)?;
    let window = generation.window.map_or(facts.window, |window| window.min(facts.window));
    let wants_none = generation.max_tokens == Some(0);
    if prompt.is_empty() {
        return Err(Refusal::field("prompt", "`prompt` must not be empty: there is nothing to go on from"));
    }
    if prompt.len() as u64 + u64::from(!wants_none) > u64::from(window) {
        return Err(Refusal::context(prompt.len() as u64, u64::from(window)));
    }
    let room = window - prompt.len() as u32;
    let shown = generation.shows_tools();
    let thinking = generation.thinking.is_on() && matches!(generation.input, Input::Chat(_));
    let rules = Rules {
        format: generation.format.clone(),
        tools: if shown { generation.tools.clone() } else { Vec::new() },
        choice: generation.choice.clone(),
        parallel: generation.parallel,
        thinking,
    };
    if shown && matches!(rules.format, Format::Regex(_) | Format::Grammar(_)) {
        return Err(Refusal::field(
            "response_format",
            "`response_format` asks for a text of another form than calls: leave `tools` out, or ask for JSON",
        ));
    }
    let column = Column::of(thinking, shown);
    let rendered: Vec<_> = generation.tools.iter().map(Tool::rendered).collect();
    Ok(Prepared {
        job: Job {
            prompt,
            max_tokens: generation.max_tokens,
            window,
            sampling: generation.sampling.resolve(facts.generation_config.as_ref(), column, facts.released),
            reply: ReplyOptions {
                thinking,
                tools: shown.then(|| ToolSchemas::new(&rendered)),
                stops: generation.stops.clone(),
                one_call: !generation.parallel,
            },
            constraint: if rules.bind() { words.constrain(&rules)? } else { None },
            logprobs: generation.logprobs,
            prompt_logprobs: generation.prompt_logprobs,
        },
        room,
    })
}

/// Whether the tools can be offered, and the choice among them can be met.
///
/// # Errors
/// Names a tool that is declared twice, or a choice that no tool meets.
pub fn check_tools(generation: &Generation) -> Result<(), Refusal> {
    let mut names = std::collections::HashSet::new();
    for tool in &generation.tools {
        // A call carries the name between tags, on a line of its own.
        let name = &tool.name;
        if name.is_empty() || name.trim() != name || name.contains(['<', '>', '\n', '\r']) {
            let name: String = name.chars().take(40).collect();
            return Err(Refusal::field(
                "tools",
                format!(
                    "`tools` declares a function named {name:?}: a name is a text without spaces around it, `<`, `>` and line ends"
                ),
            ));
        }
        if !names.insert(tool.name.as_str()) {
            return Err(Refusal::field("tools", format!("`tools` declares `{}` twice: names must differ", tool.name)));
        }
    }
    match &generation.choice {
        ToolChoice::Required if generation.tools.is_empty() => {
            Err(Refusal::field("tool_choice", "`tool_choice` asks for a call, but `tools` is empty"))
        }
        ToolChoice::Named(name) if !names.contains(name.as_str()) => {
            Err(Refusal::field("tool_choice", format!("`tool_choice` names `{name}`, which `tools` does not declare")))
        }
        _ => Ok(()),
    }
}

/// Whether stop strings keep to the limits; `field` is where they came from.
///
/// # Errors
/// When they are too many or too long.
pub fn check_stops(stops: &[String], field: &str) -> Result<(), Refusal> {
    let given = stops.iter().filter(|stop| !stop.is_empty()).count();
    if given > MAX_STOPS {
        return Err(Refusal::field(
            field,
            format!("`{field}` holds {given} strings: at most {MAX_STOPS} are accepted"),
        ));
    }
    match stops.iter().find(|stop| stop.len() > MAX_STOP_BYTES) {
        Some(long) => Err(Refusal::field(
            field,
            format!("`{field}` holds a string of {} bytes: at most {MAX_STOP_BYTES} are accepted", long.len()),
        )),
        None => Ok(()),
    }
}

fn check_bias(generation: &Generation, vocabulary: u32) -> Result<(), Refusal> {
    match generation.sampling.logit_bias.iter().find(|(id, _)| *id >= vocabulary) {
        Some((id, _)) => Err(Refusal::field(
            "logit_bias",
            format!("`logit_bias` names the id {id}: this model's ids are 0 to {}", vocabulary.saturating_sub(1)),
        )),
        None => Ok(()),
    }
}
