//! Owns: a connection's bytes: what its client does not send or take in time, whether the client is still there, and the body
//! of the refusals that the HTTP library makes by itself (server.md section 2).
//! Refuses: HTTP beyond the first line of a request.
//! Invariants: a client that closes its sending side and goes on reading gets its reply; one that is gone is noticed within
//! moments, whether its reply has begun or not.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use futures_util::task::AtomicWaker;
use rustix::event::{PollFd, PollFlags};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Sleep;

use crate::app::Times;
use crate::refusal::{Code, Family, Refusal};

/// How often it is asked whether a client is still there.
const LOOK: Duration = Duration::from_millis(50);
/// How long a client that sent its last byte may get nothing before it counts as gone, where nothing can be written to ask.
const GRACE: Duration = Duration::from_secs(10);
/// Every client skips it; one that is gone answers it with a reset.
const PROBE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// A header that is in every answer of this server, and in none that the library makes.
pub const REQUEST_ID: &str = "x-request-id";

/// What a handler and its connection know of each other.
#[derive(Default)]
pub struct Link {
    /// Requests being answered.
    busy: AtomicUsize,
    /// Requests whose answers began.
    replying: AtomicBool,
    /// Bytes written so far.
    wrote: AtomicU64,
    /// Whether the client sent its last byte.
    ended: AtomicBool,
    /// Whether a stream can write something that means nothing.
    can_probe: AtomicBool,
    waker: AtomicWaker,
}

/// A request being answered.
pub struct Busy(Arc<Link>);

impl Link {
    /// A request is being answered until what this gives is dropped.
    pub fn busy(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        self.replying.store(false, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// As [`Link::busy`], for the rest of an answer whose head goes out now.
    pub fn busy_on(self: &Arc<Self>) -> Busy {
        self.busy.fetch_add(1, Ordering::SeqCst);
        Busy(self.clone())
    }

    /// The head of the answer goes out now.
    pub fn replies(&self, can_probe: bool) {
        self.can_probe.store(can_probe, Ordering::SeqCst);
        self.replying.store(true, Ordering::SeqCst);
    }

    /// Whether the client sent its last byte, and something should be written to learn whether it still reads. It is true
    /// once.
    pub fn poll_asks(&self, context: &Context<'_>) -> bool {
        self.waker.register(context.waker());
        self.can_probe.load(Ordering::SeqCst)
            && self.ended.load(Ordering::SeqCst)
            && self.can_probe.swap(false, Ordering::SeqCst)
    }

    /// Whether a request is being answered.
    pub fn is_busy(&self) -> bool {
        self.busy.load(Ordering::SeqCst) > 0
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.busy.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Ends when the client is gone; never otherwise.
pub async fn departure(stream: Arc<TcpStream>, link: Arc<Link>) {
    // Since when the client has sent its last byte, and what was written by then.
    let mut asked: Option<(Instant, u64)> = None;
    loop {
        tokio::time::sleep(LOOK).await;
        if !link.is_busy() {
            link.ended.store(false, Ordering::SeqCst);
            asked = None;
            continue;
        }
        if hung_up(&stream) {
            return;
        }
        let wrote = link.wrote.load(Ordering::SeqCst);
        match asked {
            // What was written since was taken, or the connection would be dead by now.
            Some((_, then)) if wrote != then => {}
            Some((since, _)) if since.elapsed() > GRACE => return,
            Some(_) => {}
            None if sent_all(&stream).await => {
                asked = Some((Instant::now(), wrote));
                link.ended.store(true, Ordering::SeqCst);
                if !link.replying.load(Ordering::SeqCst)
                    && let Ok(written) = stream.try_write(PROBE)
                {
                    link.wrote.fetch_add(written as u64, Ordering::SeqCst);
                }
                link.waker.wake();
            }
            None => {}
        }
    }
}

/// Whether the client closed its sending side; elsewhere than on Linux only where nothing is left to read.
async fn sent_all(stream: &TcpStream) -> bool {
    #[cfg(target_os = "linux")]
    if is(stream, PollFlags::RDHUP, PollFlags::RDHUP) {
        return true;
    }
    let mut byte = [0];
    let peeked = std::future::poll_fn(|context| {
        let mut buffer = ReadBuf::new(&mut byte);
        Poll::Ready(match stream.poll_peek(context, &mut buffer) {
            Poll::Ready(Ok(read)) => Some(read),
            Poll::Ready(Err(_)) | Poll::Pending => None,
        })
    });
    peeked.await == Some(0)
}

/// Whether the connection is dead in both directions.
fn hung_up(stream: &TcpStream) -> bool {
    is(stream, PollFlags::empty(), PollFlags::HUP | PollFlags::ERR)
}

/// Whether any of these is so of a connection now.
fn is(stream: &TcpStream, asked: PollFlags, any: PollFlags) -> bool {
    let mut fds = [PollFd::new(stream, asked)];
    let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut fds, Some(&now)).is_ok() && fds[0].revents().intersects(any)
}

/// A connection as the HTTP library sees it.
pub struct Socket {
    stream: Arc<TcpStream>,
    link: Arc<Link>,
    /// Beginning of the request that is read.
    first: Vec<u8>,
    reading: Patience,
    writing: Patience,
    /// What is written in place of something else.
    instead: Vec<u8>,
    times: Times,
    /// Whether the client was waited for long enough: then it is told nothing more.
    given_up: bool,
}

/// A wait that ends.
struct Patience {
    sleep: Pin<Box<Sleep>>,
    waiting: bool,
}

impl Patience {
    fn new() -> Self {
        Patience { sleep: Box::pin(tokio::time::sleep(Duration::ZERO)), waiting: false }
    }

    /// Something came: the next wait begins anew.
    fn over(&mut self) {
        self.waiting = false;
    }

    fn poll(&mut self, context: &mut Context<'_>, most: Duration) -> Poll<io::Error> {
        if !self.waiting {
            self.sleep.as_mut().reset(tokio::time::Instant::now() + most);
            self.waiting = true;
        }
        self.sleep.as_mut().poll(context).map(|()| io::ErrorKind::TimedOut.into())
    }
}

/// Bytes of a request line that tell whose errors it wants.
const FIRST: usize = 64;

impl Socket {
    /// Wraps a connection.
    pub fn new(stream: Arc<TcpStream>, link: Arc<Link>, times: Times) -> Self {
        Socket {
            stream,
            link,
            first: Vec::new(),
            reading: Patience::new(),
            writing: Patience::new(),
            instead: Vec::new(),
            times,
            given_up: false,
        }
    }

    /// The body that a refusal of the library lacks: the library knows no API.
    fn refusal(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        let status: u16 = std::str::from_utf8(bytes.strip_prefix(b"HTTP/1.1 ")?.get(..3)?).ok()?.parse().ok()?;
        let head = std::str::from_utf8(bytes).ok()?.to_ascii_lowercase();
        if !(400..500).contains(&status) || head.contains(REQUEST_ID) {
            return None;
        }
        let line = String::from_utf8_lossy(&self.first);
        let path = line.split(' ').nth(1).unwrap_or_default();
        let path = path.split(['?', '\r', '\n']).next().unwrap_or_default();
        let (reason, refusal) = match status {
            431 => (
                "Request Header Fields Too Large",
                Refusal::new(Code::TooLarge, format!("the request's head is over {} KiB", super::serve::HEAD >> 10)),
            ),
            414 => ("URI Too Long", Refusal::new(Code::TooLarge, "the request's target is too long")),
            _ => ("Bad Request", Refusal::new(Code::Invalid, "the request's head is not valid HTTP/1.1")),
        };
        let mut error = Family::of(path).error(&refusal);
        if status == 431 && Family::of(path) == Family::Anthropic {
            error["error"]["type"] = serde_json::json!("request_too_large");
        }
        let body = error.to_string();
        let length = body.len();
        Some(
            format!(
                "HTTP/1.1 {status} {reason}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            )
            .into_bytes(),
        )
    }

    fn write_some(&mut self, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        loop {
            match self.stream.poll_write_ready(context) {
                Poll::Pending => {
                    return self.writing.poll(context, self.times.slow_reader).map(Err);
                }
                Poll::Ready(ready) => ready?,
            }
            match self.stream.try_write(bytes) {
                Ok(written) => {
                    self.writing.over();
                    self.link.wrote.fetch_add(written as u64, Ordering::SeqCst);
                    return Poll::Ready(Ok(written));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }

    fn write_instead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.instead.is_empty() {
            let bytes = std::mem::take(&mut self.instead);
            let written = self.write_some(context, &bytes);
            self.instead = bytes;
            let written = ready!(written)?;
            self.instead.drain(..written);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncRead for Socket {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            match self.stream.poll_read_ready(context) {
                Poll::Pending => {
                    // Between requests nothing of the next one has come.
                    let most = if self.first.is_empty() && !self.link.is_busy() {
                        self.times.idle
                    } else {
                        self.times.slow_request
                    };
                    let waited = self.reading.poll(context, most);
                    self.given_up |= waited.is_ready();
                    return waited.map(Err);
                }
                Poll::Ready(ready) => ready?,
            }
            match self.stream.try_read(buffer.initialize_unfilled()) {
                Ok(read) => {
                    self.reading.over();
                    let came = &buffer.initialized()[buffer.filled().len()..][..read];
                    let wanted = FIRST.saturating_sub(self.first.len()).min(read);
                    let came = came[..wanted].to_vec();
                    self.first.extend(came);
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl AsyncWrite for Socket {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        if self.given_up {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        ready!(self.write_instead(context))?;
        if let Some(instead) = self.refusal(bytes) {
            self.instead = instead;
            // What could not be written at once is written by the flush that follows.
            if let Poll::Ready(Err(error)) = self.write_instead(context) {
                return Poll::Ready(Err(error));
            }
            return Poll::Ready(Ok(bytes.len()));
        }
        let written = ready!(self.write_some(context, bytes))?;
        self.first.clear();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.write_instead(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.write_instead(context))?;
        match rustix::net::shutdown(&*self.stream, rustix::net::Shutdown::Write) {
            Ok(()) | Err(rustix::io::Errno::NOTCONN) => Poll::Ready(Ok(())),
            Err(error) => Poll::Ready(Err(error.into())),
        }
    }
}
