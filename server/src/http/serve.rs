//! Owns: the port, the accept loop, connections, and the end of it all (server.md sections 1.2, 1.3 and 2).
//! Refuses: connections over the limit, with an answer.
//! Invariants: the loop waits for nothing but the next connection; a connection that fails takes nothing with it; the port is
//! claimed before anything slow begins.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use warp::Filter;
use warp::http::{HeaderMap, Method, Uri};

use crate::app::App;
use crate::http::answer::Answer;
use crate::http::route::{Request, answer};
use crate::http::socket::{Link, Socket, departure};
use crate::refusal::{Code, Family, Refusal};

/// Most bytes of a request's head.
pub const HEAD: usize = 64 << 10;
/// Most headers of a request.
const HEADERS: usize = 200;
/// Connections over the limit that are told so at a time.
const TURNED_AWAY: usize = 64;
/// How long one of them is given to read its answer.
const FAREWELL: Duration = Duration::from_secs(1);
/// How long cancelled streams are given to say so.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// Why a server could not begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Somebody else has the port.
    #[error("port {port} of {host} is in use: stop the other server, or choose another port with --port")]
    InUse {
        /// The address.
        host: String,
        /// The port.
        port: u16,
    },
    /// The address cannot be had.
    #[error(
        "{host}:{port} cannot be listened on: {cause}; choose an address of this machine with --host, and a port with --port"
    )]
    Address {
        /// The address.
        host: String,
        /// The port.
        port: u16,
        /// What the system said.
        cause: io::Error,
    },
}

/// Claims an address.
///
/// # Errors
/// When somebody has it, or it is none of this machine's.
pub fn claim(host: &str, port: u16) -> Result<TcpListener, ServeError> {
    let address = std::net::ToSocketAddrs::to_socket_addrs(&(host, port));
    let failed = |cause: io::Error| match cause.kind() {
        io::ErrorKind::AddrInUse => ServeError::InUse { host: host.to_owned(), port },
        _ => ServeError::Address { host: host.to_owned(), port, cause },
    };
    let addresses: Vec<SocketAddr> = address.map_err(failed)?.collect();
    let listener = TcpListener::bind(addresses.as_slice()).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

/// How far the end has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It goes on.
    Not,
    /// Nothing new is taken; what runs may end.
    Draining,
    /// At once.
    Now,
}

/// Serves until it is told to stop, and what then still runs has ended or been cancelled.
///
/// # Errors
/// When the port cannot be used.
pub async fn serve(listener: TcpListener, app: Arc<App>, mut stop: watch::Receiver<Stop>) -> io::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let places = Arc::new(Semaphore::new(app.settings.connections));
    let farewells = Arc::new(Semaphore::new(TURNED_AWAY));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            _ = stop.wait_for(|stop| *stop != Stop::Not) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Out of files, for one: it passes.
                tracing::warn!(%error, "a connection could not be taken");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        match places.clone().try_acquire_owned() {
            Ok(place) => _ = connections.spawn(connection(stream, app.clone(), stop.clone(), place)),
            Err(_) => {
                if let Ok(place) = farewells.clone().try_acquire_owned() {
                    tokio::spawn(turn_away(stream, place));
                }
            }
        }
    }
    drop(listener);
    end(&app, &mut connections, stop).await;
    Ok(())
}

/// Lets what runs come to its end, for a while.
async fn end(app: &App, connections: &mut JoinSet<()>, mut stop: watch::Receiver<Stop>) {
    let core = app.core();
    if let Some(core) = &core {
        core.hub.drain();
    }
    let deadline = Instant::now() + app.settings.drain;
    let all = async { while connections.join_next().await.is_some() {} };
    tokio::select! {
        () = all => return,
        () = tokio::time::sleep_until(deadline) => {}
        _ = stop.wait_for(|stop| *stop == Stop::Now) => {}
    }
    if let Some(core) = &core {
        core.hub.stop();
    }
    let last = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(LAST_WORDS, last).await;
    connections.abort_all();
}

async fn connection(stream: TcpStream, app: Arc<App>, mut stop: watch::Receiver<Stop>, _place: OwnedSemaphorePermit) {
    // A token is sent when it is there.
    let _ = stream.set_nodelay(true);
    let (stream, link) = (Arc::new(stream), Arc::new(Link::default()));
    let times = app.settings.times;
    let routes = TowerToHyperService::new(warp::service(handle(app, link.clone())));
    let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
        let routes = routes.clone();
        async move {
            // A target that is no path: warp knows paths only.
            match request.method() == Method::CONNECT || request.uri().path().is_empty() {
                true => Ok(no_proxy()),
                false => hyper::service::Service::call(&routes, request).await,
            }
        }
    });
    let mut http = hyper::server::conn::http1::Builder::new();
    // The socket itself says how long it waits.
    http.timer(TokioTimer::new()).header_read_timeout(None);
    http.half_close(true).max_header_size(HEAD).max_buf_size(HEAD + (8 << 10)).max_headers(HEADERS);
    let socket = TokioIo::new(Socket::new(stream.clone(), link.clone(), times));
    let mut serving = std::pin::pin!(http.serve_connection(socket, service));
    let mut gone = std::pin::pin!(departure(stream, link.clone()));
    let mut ending = false;
    loop {
        tokio::select! {
            served = serving.as_mut() => {
                if let Err(error) = served {
                    tracing::debug!(%error, "a connection ended");
                }
                return;
            }
            () = gone.as_mut() => return,
            _ = stop.wait_for(|stop| *stop != Stop::Not), if !ending => {
                if !link.is_busy() {
                    return;
                }
                ending = true;
                serving.as_mut().graceful_shutdown();
            }
        }
    }
}

/// The answer to a request for a connection elsewhere.
fn no_proxy() -> warp::reply::Response {
    let refusal = Refusal::new(Code::Method, "this server is no proxy: ask for a path");
    Answer::refusal(Family::Own, &refusal).with_allow("GET, HEAD, POST, DELETE, OPTIONS").into_response()
}

/// Every request, whatever it is: the table of routes decides.
fn handle(
    app: Arc<App>,
    link: Arc<Link>,
) -> impl Filter<Extract = (warp::reply::Response,), Error = warp::Rejection> + Clone {
    warp::method().and(target()).and(warp::header::headers_cloned()).and(warp::body::stream()).then(
        move |method: Method, uri: Uri, headers: HeaderMap, body| {
            let (app, link) = (app.clone(), link.clone());
            async move { answer(app, link, Request { method, uri, headers, body }).await }
        },
    )
}

/// The path of the target; the query changes nothing here.
fn target() -> impl Filter<Extract = (Uri,), Error = std::convert::Infallible> + Copy {
    warp::path::full()
        .map(|path: warp::path::FullPath| Uri::builder().path_and_query(path.as_str()).build().unwrap_or_default())
}

/// Tells a connection that there are too many.
async fn turn_away(stream: TcpStream, _place: OwnedSemaphorePermit) {
    let refusal = Refusal::new(Code::Busy, "there are too many connections; try again in a moment");
    let body = Family::OpenAi.error(&refusal).to_string();
    let answer = format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\nretry-after: 1\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    );
    let work = async {
        if stream.writable().await.is_ok() && stream.try_write(answer.as_bytes()).is_ok() {
            let _ = rustix::net::shutdown(&stream, rustix::net::Shutdown::Write);
            // What it sent is taken, or closing would throw the answer away.
            let mut buffer = [0; 4096];
            while stream.readable().await.is_ok() {
                match stream.try_read(&mut buffer) {
                    Ok(0) => break,
                    Ok(_) => {}
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => break,
                }
            }
        }
    };
    let _ = timeout(FAREWELL, work).await;
}
