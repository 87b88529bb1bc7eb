//! Owns: a server for tests, and a client that sees every byte.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use crate::app::{App, Core, Settings};
use crate::engine::{Engine, Words};
use crate::http::gate::Gate;
use crate::http::serve::{Stop, claim, serve};
use crate::hub::{Hub, Limits};
use crate::real::RealWords;
use crate::scripted::{Script, Scripted};

/// The words of the small model in the repository.
pub static WORDS: LazyLock<Arc<dyn Words>> = LazyLock::new(|| {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/flash-next-nano");
    let checkpoint = ss_checkpoint::Checkpoint::open(&dir).unwrap();
    let words = Arc::new(ss_generate::Words::open(&checkpoint).unwrap());
    Arc::new(RealWords::new(words, &checkpoint).unwrap())
});

/// A server that is stopped when it is dropped.
pub struct Rig {
    /// Where it listens.
    pub address: SocketAddr,
    /// Its state.
    pub app: Arc<App>,
    stop: watch::Sender<Stop>,
    hub: Arc<Hub>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

/// How a server for tests is set up.
#[derive(Default)]
pub struct Setup {
    /// Its settings.
    pub settings: Settings,
    /// Who may ask.
    pub gate: Gate,
    /// Its limits.
    pub limits: Limits,
    /// Whether its model is never loaded.
    pub loading: bool,
}

/// The name of the model.
pub const MODEL: &str = "nano";

impl Rig {
    /// A server with one reply, said at once.
    pub fn saying(text: &str) -> Self {
        Self::with(script(json!([{ "text": text }])))
    }

    /// A server with a script.
    pub fn with(script: Script) -> Self {
        Self::set_up(script, Setup::default())
    }

    /// A server with a script and settings of its own.
    pub fn set_up(script: Script, setup: Setup) -> Self {
        Self::start(Box::new(Scripted::new(script, WORDS.clone())), setup)
    }

    /// A server over any engine.
    pub fn start(mut engine: Box<dyn Engine>, mut setup: Setup) -> Self {
        let listener = claim("127.0.0.1", 0).unwrap();
        let address = listener.local_addr().unwrap();
        setup.settings.model = MODEL.to_owned();
        setup.settings.port = address.port();
        let app = App::new(setup.settings, setup.gate);
        let hub = Hub::new(setup.limits, app.board.clone());
        let core = Core { words: WORDS.clone(), hub: hub.clone(), watch: engine.watch() };
        if !setup.loading {
            app.load(core);
        }
        let (stop, receiver) = watch::channel(Stop::Not);
        let serving = std::thread::spawn({
            let app = app.clone();
            move || {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
                runtime.block_on(serve(listener, app, receiver)).unwrap();
            }
        });
        let making = std::thread::spawn({
            let hub = hub.clone();
            move || hub.run(engine.as_mut())
        });
        Rig { address, app, stop, hub, threads: vec![serving, making] }
    }

    /// Begins the end.
    pub fn stop(&self, how: Stop) {
        let _ = self.stop.send(how);
    }

    /// A connection.
    pub fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream
    }

    /// Sends a request and reads its answer.
    pub fn ask(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Reply {
        let mut stream = self.connect();
        stream.write_all(&request(method, path, headers, body)).unwrap();
        Reply::read(&mut stream)
    }

    /// Posts JSON.
    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.ask("POST", path, &[("content-type", "application/json")], body.to_string().as_bytes())
    }

    /// Gets.
    pub fn get(&self, path: &str) -> Reply {
        self.ask("GET", path, &[], b"")
    }

    /// Waits until nothing waits and nothing runs; whether that came about in time.
    pub fn settles(&self, within: Duration) -> bool {
        let until = std::time::Instant::now() + within;
        while std::time::Instant::now() < until {
            if self.app.core().is_some_and(|core| core.hub.is_idle()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _ = self.stop.send(Stop::Now);
        self.hub.stop();
        for thread in self.threads.drain(..) {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.unwrap();
            }
        }
    }
}

/// A script of these replies.
pub fn script(replies: Value) -> Script {
    serde_json::from_value(json!({ "replies": replies })).unwrap()
}

/// A request's bytes.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut bytes = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n").into_bytes();
    for (name, value) in headers {
        bytes.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
    }
    if !body.is_empty() || method == "POST" {
        bytes.extend_from_slice(format!("content-length: {}\r\n", body.len()).as_bytes());
    }
    bytes.extend_from_slice(b"\r\n");
    bytes.extend_from_slice(body);
    bytes
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Its status.
    pub status: u16,
    /// Its headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// Its body, without the marks of chunks.
    pub body: Vec<u8>,
    /// Whether the body came to its end.
    pub whole: bool,
}

impl Reply {
    /// Reads an answer; one with another status than 100.
    pub fn read(stream: &mut TcpStream) -> Self {
        Self::read_for(stream, false)
    }

    /// Reads the answer to a `HEAD`, which has no body.
    pub fn read_head(stream: &mut TcpStream) -> Self {
        Self::read_for(stream, true)
    }

    fn read_for(stream: &mut TcpStream, head_only: bool) -> Self {
        let mut reader = Reader(stream);
        loop {
            let first = reader.line();
            let status = first.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
            let mut headers = Vec::new();
            loop {
                let line = reader.line();
                let Some((name, value)) = line.split_once(':') else { break };
                headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
            }
            if status == 100 {
                continue;
            }
            let find = |wanted: &str| headers.iter().find(|(name, _)| name == wanted).map(|(_, value)| value.clone());
            let (body, whole) = match (find("content-length"), find("transfer-encoding")) {
                _ if head_only || status == 204 => (Vec::new(), true),
                (Some(length), _) => reader.exactly(length.parse().unwrap()),
                (None, Some(_)) => reader.chunks(),
                (None, None) => (Vec::new(), status != 0),
            };
            return Reply { status, headers, body, whole };
        }
    }

    /// A header.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }

    /// The body as JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&self.body)))
    }

    /// The events of a stream: name, data.
    pub fn events(&self) -> Vec<(Option<String>, String)> {
        let text = self.text();
        let blocks = text.split("\n\n").filter(|block| block.lines().any(|line| line.starts_with("data:")));
        blocks
            .map(|block| {
                let field = |name: &str| {
                    block.lines().find_map(|line| line.strip_prefix(name)).map(|value| value.trim_start().to_owned())
                };
                (field("event:"), field("data:").unwrap())
            })
            .collect()
    }

    /// The data of a stream's events that are JSON.
    pub fn data(&self) -> Vec<Value> {
        self.events().iter().filter_map(|(_, data)| serde_json::from_str(data).ok()).collect()
    }

    /// The lines of a stream of JSON.
    pub fn lines(&self) -> Vec<Value> {
        self.text().lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

struct Reader<'s>(&'s mut TcpStream);

impl Reader<'_> {
    fn line(&mut self) -> String {
        let mut line = Vec::new();
        let mut byte = [0];
        while self.0.read(&mut byte).is_ok_and(|read| read == 1) && byte[0] != b'\n' {
            line.push(byte[0]);
        }
        String::from_utf8_lossy(&line).trim_end().to_owned()
    }

    fn exactly(&mut self, length: usize) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        let whole = self.0.take(length as u64).read_to_end(&mut body).is_ok_and(|read| read == length);
        (body, whole)
    }

    fn chunks(&mut self) -> (Vec<u8>, bool) {
        let mut body = Vec::new();
        loop {
            let Ok(length) = usize::from_str_radix(&self.line(), 16) else { return (body, false) };
            let (chunk, whole) = self.exactly(length);
            body.extend(chunk);
            if !whole {
                return (body, false);
            }
            self.line();
            if length == 0 {
                return (body, true);
            }
        }
    }
}
