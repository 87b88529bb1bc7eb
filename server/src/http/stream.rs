//! Owns: a streamed answer: pieces of a reply become frames as its client takes them (server.md sections 1.7 and 2).
//! Invariants: nothing is made before it is taken, so that a slow client fills the ticket's bounds and nothing else; after an
//! error no frame follows; a quiet stream says that it is alive.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use tokio::time::{Instant, Sleep};

use crate::engine::{Outcome, Piece};
use crate::http::socket::{Busy, Link};
use crate::hub::{Note, Ticket};
use crate::refusal::Refusal;

/// Bytes of frames that go out together at most, but for the last frame.
const TOGETHER: usize = 64 << 10;

/// Writes the frames of one API.
pub trait Writer: Send + Sync {
    /// The type of the stream.
    fn kind(&self) -> &'static str;

    /// The reply begins.
    fn begin(&mut self, out: &mut Vec<u8>);

    /// A piece of it.
    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>);

    /// Nothing came for a while; without a frame that means nothing, nothing is written.
    fn quiet(&mut self, out: &mut Vec<u8>);

    /// The reply is whole.
    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>);

    /// There will be no more of it.
    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>);
}

/// Server-sent events.
pub const SSE: &str = "text/event-stream; charset=utf-8";
/// A JSON value a line.
pub const NDJSON: &str = "application/x-ndjson";

/// A streamed answer.
pub struct Frames {
    ticket: Option<Ticket>,
    writer: Box<dyn Writer>,
    link: Arc<Link>,
    _busy: Busy,
    quiet: Pin<Box<Sleep>>,
    /// How long it may be quiet.
    most: Duration,
    /// Until the first token.
    deadline: Option<Pin<Box<Sleep>>>,
    out: Vec<u8>,
}

impl Frames {
    /// The stream of a reply whose turn has come.
    pub fn new(ticket: Ticket, mut writer: Box<dyn Writer>, link: Arc<Link>, most: Duration) -> Self {
        let mut out = Vec::new();
        writer.begin(&mut out);
        // Events may be numbered: what a writer would say while it is quiet is not tried out.
        link.replies(writer.kind() == SSE);
        let deadline = ticket.deadline().map(|at| Box::pin(tokio::time::sleep_until(Instant::from_std(at))));
        Frames {
            _busy: link.busy_on(),
            ticket: Some(ticket),
            writer,
            link,
            quiet: Box::pin(tokio::time::sleep(most)),
            most,
            deadline,
            out,
        }
    }

    /// The type of the stream.
    pub fn kind(&self) -> &'static str {
        self.writer.kind()
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.writer.fail(refusal, &mut self.out);
        self.ticket = None;
    }

    /// Takes what has come.
    fn take(&mut self, context: &mut Context<'_>) {
        while let Some(ticket) = &mut self.ticket
            && self.out.len() < TOGETHER
        {
            match ticket.poll_next(context) {
                Poll::Pending => return,
                Poll::Ready(Some(Note::Began)) => {}
                Poll::Ready(Some(Note::Piece(piece))) => {
                    if !matches!(piece, Piece::Reading { .. }) {
                        self.deadline = None;
                    }
                    self.writer.piece(piece, &mut self.out);
                }
                Poll::Ready(Some(Note::Ended(outcome))) => {
                    self.writer.end(&outcome, &mut self.out);
                    self.ticket = None;
                }
                Poll::Ready(Some(Note::Failed(refusal))) => self.fail(&refusal),
                Poll::Ready(None) => self.fail(&Refusal::inference("the engine ended without a word")),
            }
        }
    }

    /// Says something where nothing comes.
    fn wait(&mut self, context: &mut Context<'_>) {
        if let (Some(deadline), Some(ticket)) = (&mut self.deadline, &self.ticket)
            && deadline.as_mut().poll(context).is_ready()
        {
            let late = ticket.late();
            return self.fail(&late);
        }
        if self.link.poll_asks(context) {
            self.writer.quiet(&mut self.out);
        }
        while self.quiet.as_mut().poll(context).is_ready() {
            self.writer.quiet(&mut self.out);
            self.quiet.as_mut().reset(Instant::now() + self.most);
        }
    }
}

impl Stream for Frames {
    type Item = Result<Bytes, std::convert::Infallible>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let frames = self.get_mut();
        frames.take(context);
        if frames.ticket.is_some() {
            frames.wait(context);
        }
        if !frames.out.is_empty() {
            frames.quiet.as_mut().reset(Instant::now() + frames.most);
            return Poll::Ready(Some(Ok(std::mem::take(&mut frames.out).into())));
        }
        if frames.ticket.is_none() { Poll::Ready(None) } else { Poll::Pending }
    }
}

/// Appends a server-sent event.
pub fn event(out: &mut Vec<u8>, name: Option<&str>, data: &str) {
    if let Some(name) = name {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(name.as_bytes());
        out.push(b'\n');
    }
    // JSON as it is written here has no line ends of its own.
    out.extend_from_slice(b"data: ");
    out.extend_from_slice(data.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends a comment, which every reader of events skips.
pub fn comment(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(b": ");
    out.extend_from_slice(text.as_bytes());
    out.extend_from_slice(b"\n\n");
}

/// Appends a line of JSON.
pub fn line(out: &mut Vec<u8>, data: &str) {
    out.extend_from_slice(data.as_bytes());
    out.push(b'\n');
}
