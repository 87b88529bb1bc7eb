//! Owns: `ss serve`: from flags to a server that answers, and to its end (server.md sections 1 and 2).
//! Invariants: flags are checked and the port is claimed before the model is loaded; the first signal lets what runs end, the
//! second ends it at once.

use std::net::TcpListener;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use ss_checkpoint::Checkpoint;
use ss_generate::Words;
use ss_server::app::{App, Core, Settings, Times};
use ss_server::engine::Engine;
use ss_server::http::gate::Gate;
use ss_server::http::serve::{Stop, claim};
use ss_server::hub::{Hub, Limits};
use ss_server::real::{Loaded, RealEngine, RealWords};
use ss_server::scripted::{Script, Scripted};
use ss_server::snapshot::MemoryPart;
use tokio::sync::watch;

use crate::args::{LogFormat, ServeArgs};
use crate::exit::Exit;
use crate::hot::HotFile;
use crate::setup::{self, Ready, name};
use crate::{journal, places, terminal};

/// The name of the model that the program is made for.
const RELEASED: &str = "qwen3.8-flash-next:4bit";
/// How long the engine is waited for when everything else has ended.
const LAST_PASS: Duration = Duration::from_millis(500);

/// Runs the command.
///
/// # Errors
/// When the port is taken, a flag names what is not there, or the model cannot be loaded.
pub fn serve(args: &ServeArgs) -> Result<Exit> {
    let script = args.script.as_deref().map(script).transpose()?;
    let listener = claim(&args.listen.host, args.listen.port)?;
    let port = listener.local_addr().context("the port cannot be asked for")?.port();
    let _journal = journal::open(&args.log)?;
    let app = App::new(settings(args, port)?, gate(args));
    let server = Server::start(listener, app.clone())?;
    let url = format!("http://{}:{port}", shown(&args.listen.host));
    tell(args, format_args!("listening on {url}; loading the model"));
    if !app.gate.loopback_only && app.gate.key.is_none() {
        tell(args, format_args!("note: whoever reaches this machine may ask; --api-key changes that"));
    }
    match script {
        Some(script) => run_script(args, app, server, script, &url),
        None => run_model(args, app, server, &url),
    }
}

/// Tells the operator: a sentence, or where a program reads along a line of the log.
fn tell(args: &ServeArgs, words: impl std::fmt::Display) {
    match args.log.log_format {
        LogFormat::Json => tracing::info!("{words}"),
        LogFormat::Text => terminal::note(words),
    }
}

/// An address as it stands in a URL.
fn shown(host: &str) -> String {
    if host.contains(':') { format!("[{host}]") } else { host.to_owned() }
}

fn script(path: &std::path::Path) -> Result<Script> {
    let text = std::fs::read_to_string(path);
    let text = text.with_context(|| format!("`--script`: `{}` cannot be read", path.display()))?;
    serde_json::from_str(&text).with_context(|| format!("`--script`: `{}` is no script", path.display()))
}

fn gate(args: &ServeArgs) -> Gate {
    let loopback = args.listen.host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback());
    Gate {
        origins: args.listen.cors_origin.clone(),
        key: args.listen.api_key.clone(),
        loopback_only: loopback || args.listen.host.eq_ignore_ascii_case("localhost"),
    }
}

fn settings(args: &ServeArgs, port: u16) -> Result<Settings> {
    Ok(Settings {
        model: served_name(args)?,
        aliases: args.listen.alias.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        port,
        connections: args.limits.connections as usize,
        drain: Duration::from_secs(args.limits.drain_seconds.into()),
        log_prompts: args.log.log_prompts,
        times: Times::default(),
    })
}

/// The name that the model goes by.
fn served_name(args: &ServeArgs) -> Result<String> {
    if let Some(name) = &args.listen.name {
        return Ok(name.clone());
    }
    let dir = model_dir(args)?;
    let released = Checkpoint::open(&dir).is_ok_and(|checkpoint| checkpoint.geometry().is_released());
    Ok(if released { RELEASED.to_owned() } else { name(&dir) })
}

fn model_dir(args: &ServeArgs) -> Result<std::path::PathBuf> {
    args.load.model.as_deref().map_or_else(places::shipped_model, places::model_dir)
}

fn limits(args: &ServeArgs) -> Limits {
    let wait = Some(args.limits.max_prefill_wait).filter(|&seconds| seconds > 0);
    Limits { queue: args.limits.queue as usize, prefill_wait: wait.map(|seconds| Duration::from_secs(seconds.into())) }
}

fn run_script(args: &ServeArgs, app: Arc<App>, server: Server, script: Script, url: &str) -> Result<Exit> {
    let checkpoint = Checkpoint::open(&model_dir(args)?)?;
    let words = Arc::new(Words::open(&checkpoint)?);
    let words = Arc::new(RealWords::new(words, &checkpoint)?);
    let engine = Scripted::new(script, words.clone());
    let hub = Hub::new(limits(args), app.board.clone());
    app.load(Core { words, hub: hub.clone(), watch: engine.watch() });
    tell(args, format_args!("ready: {} at {url}, by a script", app.settings.model));
    let (making, _) = make(hub, engine)?;
    server.end()?;
    let _ = making.recv_timeout(LAST_PASS);
    Ok(Exit::Answered)
}

fn run_model(args: &ServeArgs, app: Arc<App>, server: Server, url: &str) -> Result<Exit> {
    let Ready { mut engine, device, slots, memory, machine, .. } =
        setup::load(&args.load, args.pool.size(), args.prefill_pass)?;
    let hot = if args.no_hot_set { None } else { HotFile::of(&engine.model) };
    if let Some(hot) = &hot {
        engine.model.warm(&hot.read(false));
    }
    let words = Arc::new(RealWords::new(engine.words().clone(), engine.model.checkpoint())?);
    // A thread of its own: the first replies need not wait for it.
    std::thread::spawn({
        let words = words.clone();
        move || words.warm()
    });
    let memory = memory.into_iter().filter(|(_, bytes)| *bytes > 0).map(|(name, bytes)| MemoryPart { name, bytes });
    let loaded = Loaded { memory: memory.collect(), machine_bytes: machine, slots, prefill_pass: args.prefill_pass };
    let engine = RealEngine::new(engine, loaded);
    let hub = Hub::new(limits(args), app.board.clone());
    app.load(Core { words, hub: hub.clone(), watch: engine.watch() });
    tell(args, format_args!("ready: {} at {url}; a browser shows a page there, Ctrl-C ends it", app.settings.model));
    let (making, thread) = make(hub, engine)?;
    server.end()?;
    // An engine in the middle of a long pass is left where it is.
    if let Ok(engine) = making.recv_timeout(LAST_PASS) {
        let _ = thread.join();
        if let Some(hot) = &hot {
            hot.write(&engine.into_inner().model.store().experts.uses().hottest());
        }
    }
    device.keep();
    Ok(Exit::Answered)
}

/// Has an engine make replies on a thread of its own; it comes back when there are no more.
fn make<E: Engine + 'static>(hub: Arc<Hub>, mut engine: E) -> Result<(Receiver<E>, JoinHandle<()>)> {
    let (back, ended) = channel();
    let thread = std::thread::Builder::new().name("ss-engine".to_owned()).spawn(move || {
        hub.run(&mut engine);
        let _ = back.send(engine);
    });
    Ok((ended, thread.context("the engine's thread cannot be started")?))
}

/// The server's own threads.
struct Server {
    serving: JoinHandle<std::io::Result<()>>,
}

impl Server {
    /// Begins to answer, if only that the model is being loaded.
    fn start(listener: TcpListener, app: Arc<App>) -> Result<Self> {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).thread_name("ss-http").enable_all().build();
        let runtime = runtime.context("the server's threads cannot be started")?;
        let (stop, stopped) = watch::channel(Stop::Not);
        let serving = std::thread::Builder::new().name("ss-serve".to_owned()).spawn(move || {
            runtime.spawn(signals(stop, app.clone()));
            let served = runtime.block_on(ss_server::http::serve::serve(listener, app, stopped));
            // A request that is being prepared is not waited for.
            runtime.shutdown_background();
            served
        });
        Ok(Server { serving: serving.context("the server's thread cannot be started")? })
    }

    /// Waits for the end.
    fn end(self) -> Result<()> {
        match self.serving.join() {
            Ok(served) => served.context("the port cannot be used any longer"),
            Err(_) => anyhow::bail!("the server came upon a fault of its own; its log tells more"),
        }
    }
}

/// Follows the signals that end a program.
async fn signals(stop: watch::Sender<Stop>, app: Arc<App>) {
    signal().await;
    if !app.is_loaded() {
        // Nobody is being answered.
        std::process::exit(Exit::Answered.code().into());
    }
    tracing::info!("ending: what runs may go on for a while; a second signal ends it at once");
    let _ = stop.send(Stop::Draining);
    signal().await;
    tracing::warn!(requests = app.unanswered(), "ended by a second signal: what ran or waited is broken off");
    let _ = stop.send(Stop::Now);
    // Streams get a moment to say so.
    tokio::time::sleep(LAST_PASS).await;
    std::process::exit(Exit::Answered.code().into());
}

/// The next signal to end.
async fn signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate()))
        else {
            return std::future::pending().await;
        };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
    #[cfg(not(unix))]
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending::<()>().await;
    }
}
