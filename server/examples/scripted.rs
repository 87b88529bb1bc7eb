//! Owns: a server whose replies are those of a script, for tests that need one on a port: of the page, of clients.
//! Refuses: a real engine; the words alone are a model's.
//! Invariants: it says on its output where it listens, once it does, and serves until it is ended.

use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

use ss_checkpoint::Checkpoint;
use ss_server::app::{App, Core, Settings};
use ss_server::engine::{Engine, Words};
use ss_server::http::gate::Gate;
use ss_server::http::serve::{Stop, claim, serve};
use ss_server::hub::{Hub, Limits};
use ss_server::real::RealWords;
use ss_server::scripted::Scripted;
use tokio::sync::watch;

const USAGE: &str = "usage: scripted --script FILE [--port N] [--model DIR] [--api-key KEY]";

/// What the command line says.
struct Arguments {
    script: PathBuf,
    port: u16,
    model: PathBuf,
    key: Option<String>,
}

fn arguments() -> Result<Arguments, Box<dyn Error>> {
    let (mut script, mut port, mut key) = (None, 0, None);
    let mut model = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../models/flash-next-nano"));
    let mut words = std::env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match name.as_str() {
            "--script" => script = Some(PathBuf::from(value)),
            "--port" => port = value.parse()?,
            "--model" => model = PathBuf::from(value),
            "--api-key" => key = Some(value),
            _ => return Err(USAGE.into()),
        }
    }
    Ok(Arguments { script: script.ok_or(USAGE)?, port, model, key })
}

fn main() -> Result<(), Box<dyn Error>> {
    let Arguments { script, port, model, key } = arguments()?;
    let script = serde_json::from_slice(&std::fs::read(script)?)?;
    let checkpoint = Checkpoint::open(&model)?;
    let words: Arc<dyn Words> =
        Arc::new(RealWords::new(Arc::new(ss_generate::Words::open(&checkpoint)?), &checkpoint)?);
    let mut engine = Scripted::new(script, words.clone());

    let listener = claim("127.0.0.1", port)?;
    let address = listener.local_addr()?;
    let name = model.file_name().map_or("scripted".into(), |name| name.to_string_lossy().into_owned());
    let settings = Settings { model: name, port: address.port(), ..Settings::default() };
    let app = App::new(settings, Gate { key, loopback_only: true, ..Gate::default() });
    let hub = Hub::new(Limits::default(), app.board.clone());
    app.load(Core { words, hub: hub.clone(), watch: engine.watch() });
    std::thread::spawn(move || hub.run(&mut engine));

    println!("listening on http://{address}");
    let (_never, stop) = watch::channel(Stop::Not);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    Ok(runtime.block_on(serve(listener, app, stop))?)
}
