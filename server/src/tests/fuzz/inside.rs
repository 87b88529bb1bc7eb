//! Owns: a server without sockets: a request goes in where the HTTP library would put it, and the answer's bytes come out.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::body::Body;
use parking_lot::Mutex;
use serde_json::Value;
use ss_model::Cancel;
use ss_text::{Ending, ReplyParser};
use warp::http::{HeaderMap, Method, Uri};

use crate::app::{App, Core};
use crate::engine::{Ended, Engine, Job, Outcome, Piece, Token, Watch};
use crate::http::route::{Request, answer};
use crate::http::socket::Link;
use crate::hub::{Hub, Limits};
use crate::refusal::Refusal;
use crate::snapshot::EngineView;
use crate::tests::rig::WORDS;

/// What the engine says next.
#[derive(Clone, Default)]
pub struct Saying {
    /// The reply's pieces, a token each.
    pub pieces: Vec<String>,
    /// Whether it is cut.
    pub cut: bool,
}

/// An engine that says what it is given, whatever limits there are: a reply's end does not depend on how it is cut.
struct Sayer(Arc<Mutex<Saying>>);

impl Engine for Sayer {
    fn answer(&mut self, job: Job, _: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal> {
        let Saying { pieces, cut } = self.0.lock().clone();
        let total = job.prompt.len();
        tell(Piece::Reading { done: total, total });
        let mut parser =
            ReplyParser::new(job.reply.clone()).map_err(|error| Refusal::field("stop", error.to_string()))?;
        let mut output = 0;
        for piece in pieces {
            let token = (piece.clone(), piece.clone().into_bytes());
            let top = vec![(token.0.clone(), token.1.clone(), -0.5); job.logprobs.unwrap_or(0).min(2).into()];
            let logprob = job.logprobs.map(|_| -0.5);
            tell(Piece::Token(Token { id: 0, text: token.0, bytes: token.1, logprob, top }));
            output += 1;
            parser.push(&piece).into_iter().for_each(|event| tell(Piece::Event(event)));
            if parser.is_over() {
                break;
            }
        }
        let cut = cut && !parser.is_over();
        let ending = if cut { Ending::Cut } else { Ending::Natural };
        parser.finish(ending).into_iter().for_each(|event| tell(Piece::Event(event)));
        Ok(Outcome {
            ended: if cut { Ended::Limit } else { Ended::Stop },
            prompt: total as u32,
            cached: 0,
            output,
            reasoning: 0,
            prefill: Duration::ZERO,
            decode: Duration::ZERO,
        })
    }

    fn watch(&self) -> Watch {
        Arc::new(EngineView::default)
    }
}

/// A server without sockets.
pub struct Inside {
    app: Arc<App>,
    runtime: tokio::runtime::Runtime,
    saying: Arc<Mutex<Saying>>,
    hub: Arc<Hub>,
    thread: Option<std::thread::JoinHandle<()>>,
}

/// An answer.
pub struct Told {
    /// Its status.
    pub status: u16,
    /// Its type.
    pub kind: String,
    /// Its body.
    pub body: String,
}

impl Told {
    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

impl Inside {
    /// A server.
    pub fn new() -> Self {
        let app = App::new(Default::default(), Default::default());
        let hub = Hub::new(Limits::default(), app.board.clone());
        let saying = Arc::<Mutex<Saying>>::default();
        let mut engine = Sayer(saying.clone());
        app.load(Core { words: WORDS.clone(), hub: hub.clone(), watch: engine.watch() });
        let thread = std::thread::spawn({
            let hub = hub.clone();
            move || hub.run(&mut engine)
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        Inside { app, runtime, saying, hub, thread: Some(thread) }
    }

    /// What the engine says from now on.
    pub fn say(&self, saying: Saying) {
        *self.saying.lock() = saying;
    }

    /// The answer to a body, which comes in two pieces.
    pub fn post(&self, path: &str, body: &[u8]) -> Told {
        let (first, second) = body.split_at(body.len() / 3);
        let pieces = [first.to_vec(), second.to_vec()].map(|piece| Ok::<_, std::io::Error>(Bytes::from(piece)));
        let request = Request {
            method: Method::POST,
            uri: path.parse::<Uri>().unwrap(),
            headers: HeaderMap::new(),
            body: futures_util::stream::iter(pieces),
        };
        self.runtime.block_on(async {
            let response = answer(self.app.clone(), Arc::new(Link::default()), request).await;
            let (head, mut body) = response.into_parts();
            let mut bytes = Vec::new();
            while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
                bytes.extend_from_slice(&frame.unwrap().into_data().unwrap_or_default());
            }
            let kind = head.headers["content-type"].to_str().unwrap().to_owned();
            Told { status: head.status.as_u16(), kind, body: String::from_utf8(bytes).expect("an answer is UTF-8") }
        })
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        self.hub.stop();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
