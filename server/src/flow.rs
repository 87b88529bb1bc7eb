//! Owns: the way of a generation from its checked body to its answer, the same for every dialect.
//! Refuses: any one API's words; a dialect says them.
//! Invariants: the head of a stream goes out only when the reply's turn has come; a reply that cannot be used is an error,
//! streamed or not; what is streamed, joined, is what is given whole.

use std::time::SystemTime;

use serde_json::Value;
use ss_text::{Event, Reply};
use tokio::time::{Instant, sleep_until};

use crate::app::seconds;
use crate::engine::{Ended, Outcome, Piece, Token};
use crate::http::answer::Answer;
use crate::http::route::Call;
use crate::http::stream::{Frames, NDJSON, Writer};
use crate::hub::{Note, Reader, Tag, Ticket};
use crate::prepare::prepare;
use crate::refusal::{Code, Refusal};
use crate::request::{Generation, Input, ToolChoice};

/// What a dialect knows before the first token.
#[derive(Clone, Debug)]
pub struct Start {
    /// The request's id.
    pub request: String,
    /// The name that the model is served by.
    pub model: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Prompt tokens.
    pub prompt_tokens: u32,
    /// Room for the reply in the window, in tokens.
    pub room: u32,
    /// Whether a call was asked for that the reply must hold.
    pub call_wanted: bool,
}

/// A whole reply.
#[derive(Clone, Debug)]
pub struct Made {
    /// What was known before it.
    pub start: Start,
    /// The reply.
    pub reply: Reply,
    /// The same in the order written: pieces of one kind in a row are one, and of calls there are their ends.
    pub events: Vec<Event>,
    /// Its tokens.
    pub tokens: Vec<Token>,
    /// The prompt's tokens, if they were asked for.
    pub prompt: Vec<Token>,
    /// What it came to.
    pub outcome: Outcome,
}

/// How an API says what a reply is.
pub trait Dialect: Send + Sync + 'static {
    /// The answer that is not streamed.
    ///
    /// # Errors
    /// When this API has no form for it.
    fn whole(&self, made: Made) -> Result<Value, Refusal>;

    /// What writes the streamed answer.
    fn writer(self: Box<Self>, start: Start) -> Box<dyn Writer>;
}

/// Answers a request for a reply.
///
/// # Errors
/// When it cannot be done, or fails before the head of a stream is out.
pub async fn reply(
    call: Call,
    generation: Generation,
    dialect: Box<dyn Dialect>,
    stream: bool,
) -> Result<Answer, Refusal> {
    let reader = if stream { Reader::Client } else { Reader::Server };
    let (mut ticket, start) = begin(&call, call.tag.clone(), generation, reader).await?;
    if stream {
        let writer = dialect.writer(start);
        if writer.kind() == NDJSON {
            await_token(&mut ticket).await?;
        }
        return Ok(Answer::frames(Frames::new(ticket, writer, call.link.clone(), call.app.settings.times.quiet)));
    }
    dialect.whole(gather(ticket, start).await?).map(Answer::from)
}

/// Makes a whole reply.
///
/// # Errors
/// When it cannot be done, or fails.
pub async fn make(call: &Call, tag: Tag, generation: Generation) -> Result<Made, Refusal> {
    let (ticket, start) = begin(call, tag, generation, Reader::Server).await?;
    gather(ticket, start).await
}

/// Prepares a reply, takes its place in the queue, and waits for its turn.
async fn begin(call: &Call, tag: Tag, generation: Generation, reader: Reader) -> Result<(Ticket, Start), Refusal> {
    let words = call.core.words.clone();
    if call.app.settings.log_prompts {
        tracing::info!(request = tag.id, prompt = said(&generation.input), "asked");
    }
    let call_wanted = matches!(generation.choice, ToolChoice::Required | ToolChoice::Named(_));
    // Rendering and encoding a long prompt takes long: other requests go on meanwhile.
    let prepared = off_thread(move || prepare(&generation, words.as_ref())).await??;
    let start = Start {
        request: tag.id.clone(),
        model: call.app.settings.model.clone(),
        created: seconds(SystemTime::now()),
        prompt_tokens: prepared.job.prompt.len() as u32,
        room: prepared.room,
        call_wanted,
    };
    let mut ticket = call.core.hub.submit(tag, prepared.job, reader)?;
    await_turn(&mut ticket).await?;
    Ok((ticket, start))
}

/// What a reply is made to, as the log shows it.
fn said(input: &Input) -> String {
    match input {
        Input::Chat(messages) => Value::from(messages.clone()).to_string(),
        Input::Text(text) => text.clone(),
        Input::Ids(ids) => format!("{ids:?}"),
    }
}

/// Runs what takes long beside the requests.
///
/// # Errors
/// When it panics.
pub async fn off_thread<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, Refusal> {
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "preparing a request failed");
        Refusal::inference("the server came upon a fault of its own; its log tells more")
    })
}

/// Waits until the reply's turn comes.
async fn await_turn(ticket: &mut Ticket) -> Result<(), Refusal> {
    match next_in_time(ticket).await? {
        Note::Failed(refusal) => Err(refusal),
        _ => Ok(()),
    }
}

/// Waits for the first token. Lines of JSON have nothing to say before it, and as long as no head is out it can be asked whether
/// a client that closed its sending side still reads.
async fn await_token(ticket: &mut Ticket) -> Result<(), Refusal> {
    loop {
        match next_in_time(ticket).await? {
            Note::Began | Note::Piece(Piece::Reading { .. }) => {}
            Note::Failed(refusal) => return Err(refusal),
            note => {
                ticket.put_back(note);
                return Ok(());
            }
        }
    }
}

/// What a ticket tells next, if that is in time for a first token.
async fn next_in_time(ticket: &mut Ticket) -> Result<Note, Refusal> {
    let ended = || Refusal::inference("the engine ended without a word");
    match ticket.deadline() {
        None => ticket.next().await.ok_or_else(ended),
        Some(deadline) => tokio::select! {
            note = ticket.next() => note.ok_or_else(ended),
            () = sleep_until(Instant::from_std(deadline)) => Err(ticket.late()),
        },
    }
}

/// Gathers a reply that is not streamed.
async fn gather(mut ticket: Ticket, start: Start) -> Result<Made, Refusal> {
    let (mut reply, mut events, mut tokens, mut prompt) = (Reply::default(), Vec::new(), Vec::new(), Vec::new());
    let mut begun = false;
    loop {
        let note = match begun {
            true => ticket.next().await.ok_or_else(|| Refusal::inference("the engine ended without a word"))?,
            false => next_in_time(&mut ticket).await?,
        };
        match note {
            Note::Began | Note::Piece(Piece::Reading { .. }) => {}
            Note::Piece(Piece::Prompt(told)) => prompt = told,
            Note::Piece(Piece::Token(token)) => {
                begun = true;
                tokens.push(token);
            }
            Note::Piece(Piece::Event(event)) => {
                join(&mut events, &event);
                reply.add(event);
            }
            Note::Failed(refusal) => return Err(refusal),
            Note::Ended(outcome) => {
                let calls = reply.calls.iter().filter(|call| call.complete).count();
                check_end(&start, &outcome, calls, reply.error.as_ref().map(|error| error.to_string()))?;
                return Ok(Made { start, reply, events, tokens, prompt, outcome });
            }
        }
    }
}

/// Adds an event to those before it.
fn join(events: &mut Vec<Event>, event: &Event) {
    match (events.last_mut(), event) {
        (Some(Event::Text(all)), Event::Text(more)) | (Some(Event::Reasoning(all)), Event::Reasoning(more)) => {
            *all += more;
        }
        (_, Event::CallStart { .. } | Event::CallArguments { .. }) => {}
        _ => events.push(event.clone()),
    }
}

/// Whether a reply that ended can be used.
///
/// # Errors
/// When the model wrote a call that is none, or none where one was asked for.
pub fn check_end(start: &Start, outcome: &Outcome, calls: usize, failed: Option<String>) -> Result<(), Refusal> {
    if let Some(error) = failed {
        return Err(Refusal::inference(format!("the model's reply cannot be used: {error}")));
    }
    match outcome.ended {
        Ended::Cancelled => Err(Refusal::new(Code::Cancelled, "the reply was cancelled")),
        Ended::Stop if start.call_wanted && calls == 0 => {
            Err(Refusal::inference("the model ended its reply without the call that `tool_choice` asks for"))
        }
        _ => Ok(()),
    }
}

/// What a writer of frames keeps of a reply: enough to know whether its end is a good one.
#[derive(Debug)]
pub struct Watched {
    /// What was known before it.
    pub start: Start,
    calls: usize,
    failed: Option<String>,
    /// The stop string that ended the reply.
    pub stop: Option<String>,
}

impl Watched {
    /// Nothing yet.
    pub fn new(start: Start) -> Self {
        Watched { start, calls: 0, failed: None, stop: None }
    }

    /// Complete calls so far.
    pub fn calls(&self) -> usize {
        self.calls
    }

    /// Sees an event.
    pub fn see(&mut self, event: &Event) {
        match event {
            Event::CallEnd { .. } => self.calls += 1,
            Event::Stop(stop) => self.stop = Some(stop.clone()),
            Event::Failed(error) => self.failed = Some(error.to_string()),
            _ => {}
        }
    }

    /// Whether the reply can be used.
    ///
    /// # Errors
    /// As [`check_end`].
    pub fn check(&self, outcome: &Outcome) -> Result<(), Refusal> {
        check_end(&self.start, outcome, self.calls, self.failed.clone())
    }
}
