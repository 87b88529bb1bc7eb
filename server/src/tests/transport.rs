//! Owns: connections as they misbehave (server.md section 12, rows 39 to 58 and 94 to 104): whatever one does, the next request
//! is answered, and nothing is left over.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::rig::{MODEL, Reply, Rig, Setup, request, script};
use crate::app::{Settings, Times};
use crate::http::gate::Gate;
use crate::http::serve::Stop;
use crate::hub::Limits;

const CHAT: &str = "/v1/chat/completions";

fn hello() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }] })
}

fn streamed() -> Value {
    json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": true })
}

/// A server whose reply takes some seconds: a token every few milliseconds.
fn slow() -> Rig {
    Rig::with(script(json!([{ "text": "word ", "times": 400, "token_ms": 10 }])))
}

/// Sends a request and gives its connection.
fn send(rig: &Rig, path: &str, body: &Value) -> TcpStream {
    let mut stream = rig.connect();
    stream.write_all(&request("POST", path, &[], body.to_string().as_bytes())).unwrap();
    stream
}

/// Waits until a reply is being written.
fn writing(rig: &Rig) {
    let until = Instant::now() + Duration::from_secs(10);
    while Instant::now() < until {
        if rig.app.board.running().iter().any(|running| running.output_tokens > 0) {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("nothing was written");
}

/// The request before was cancelled, soon, and the next is answered.
fn cancelled_and_alive(rig: &Rig, within: Duration) {
    assert!(rig.settles(within), "the request goes on: {:?}", rig.app.board.running());
    assert_eq!(rig.app.board.done()[0].ended, "cancelled");
    assert_eq!(rig.get("/api/version").status, 200);
}

#[test]
fn bodies_that_are_none_are_refused() {
    let rig = Rig::saying("ok");
    let deep = "[".repeat(100_000);
    let bodies: [&[u8]; 8] = [
        b"{not json",
        b"",
        b"[]",
        b"\"x\"",
        b"null",
        b"{\"a\":\"\xff\"}",
        br#"{"messages":"\ud800"}"#,
        deep.as_bytes(),
    ];
    for path in [CHAT, "/v1/completions", "/v1/responses", "/v1/messages", "/api/chat", "/api/generate", "/api/show"] {
        for body in bodies {
            let reply = rig.ask("POST", path, &[], body);
            assert_eq!(reply.status, 400, "{path} {:?}", &body[..body.len().min(20)]);
            assert!(reply.json().get("error").is_some(), "{path}");
        }
    }
    assert_eq!(rig.post(CHAT, &hello()).status, 200);
}

/// Row 43: the client reads its refusal although it sends all of its body first.
#[test]
fn a_body_that_is_too_large_is_refused_and_the_client_reads_it() {
    let rig = Rig::saying("ok");
    for path in [CHAT, "/v1/messages", "/api/chat"] {
        let mut stream = rig.connect();
        let body = vec![b' '; 40 << 20];
        stream.write_all(&request("POST", path, &[], &body)).unwrap();
        let reply = Reply::read(&mut stream);
        assert_eq!(reply.status, 413, "{path}");
        assert_eq!(reply.header("connection"), Some("close"));
    }
    assert_eq!(rig.post(CHAT, &hello()).status, 200);
}

/// Row 44.
#[test]
fn a_large_body_that_never_comes_is_refused_soon() {
    let rig = Rig::saying("ok");
    let mut stream = rig.connect();
    let begun = Instant::now();
    stream
        .write_all(b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 40000000\r\n\r\n")
        .unwrap();
    assert_eq!(Reply::read(&mut stream).status, 413);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Row 45, and lengths that contradict each other.
#[test]
fn a_length_that_is_none_is_refused_in_the_form_of_the_api() {
    let rig = Rig::saying("ok");
    for lengths in ["content-length: abc", "content-length: -5", "content-length: 5\r\ncontent-length: 6"] {
        for (path, form) in [(CHAT, "/error/message"), ("/v1/messages", "/error/message"), ("/api/chat", "/error")] {
            let mut stream = rig.connect();
            write!(stream, "POST {path} HTTP/1.1\r\nhost: localhost\r\n{lengths}\r\n\r\n").unwrap();
            let reply = Reply::read(&mut stream);
            assert_eq!(reply.status, 400, "{lengths}");
            assert!(reply.json().pointer(form).is_some_and(Value::is_string), "{path}: {}", reply.text());
        }
    }
}

/// Row 46.
#[test]
fn a_body_in_chunks_is_read() {
    let rig = Rig::saying("ok");
    let mut stream = rig.connect();
    let body = hello().to_string();
    let (one, two) = body.split_at(10);
    write!(stream, "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n").unwrap();
    write!(stream, "{:x}\r\n{one}\r\n{:x}\r\n{two}\r\n0\r\n\r\n", one.len(), two.len()).unwrap();
    assert_eq!(Reply::read(&mut stream).status, 200);
}

#[test]
fn an_encoded_body_is_refused_by_name() {
    let rig = Rig::saying("ok");
    let reply = rig.ask("POST", CHAT, &[("content-encoding", "gzip")], b"\x1f\x8b");
    assert_eq!(reply.status, 415);
    assert!(reply.text().contains("gzip"));
}

/// Row 47.
#[test]
fn a_head_that_is_too_large_is_refused_in_the_form_of_the_api() {
    let rig = Rig::saying("ok");
    let long = "x".repeat(70 << 10);
    for (path, form) in [(CHAT, "/error/code"), ("/v1/messages", "/error/type"), ("/api/chat", "/error")] {
        let mut stream = rig.connect();
        // The server may close before all of it is sent.
        let _ = stream.write_all(&request("POST", path, &[("x-long", &long)], b"{}"));
        let reply = Reply::read(&mut stream);
        assert_eq!(reply.status, 431, "{path}");
        assert!(reply.json().pointer(form).is_some_and(Value::is_string), "{}", reply.text());
    }
    let fits = "x".repeat(60 << 10);
    assert_eq!(rig.ask("GET", "/api/version", &[("x-long", &fits)], b"").status, 200);
}

/// Row 48.
#[test]
fn connections_over_the_limit_are_told_so_and_places_come_back() {
    let settings = Settings { connections: 8, ..Settings::default() };
    let rig = Rig::set_up(script(json!([])), Setup { settings, ..Setup::default() });
    let idle: Vec<TcpStream> = (0..8).map(|_| rig.connect()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let turned_away = rig.get("/api/version");
    assert_eq!((turned_away.status, turned_away.header("retry-after")), (503, Some("1")));
    drop(idle);
    let until = Instant::now() + Duration::from_secs(5);
    while rig.get("/api/version").status != 200 {
        assert!(Instant::now() < until, "places do not come back");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Row 50.
#[test]
fn nothing_else_waits_for_a_reply() {
    let rig = slow();
    let stream = send(&rig, CHAT, &streamed());
    writing(&rig);
    let count = json!({ "model": MODEL, "messages": [{ "role": "user", "content": "hi" }] }).to_string();
    for _ in 0..5 {
        for (method, path, body) in [
            ("GET", "/api/tags", ""),
            ("GET", "/api/ps", ""),
            ("GET", "/v1/models", ""),
            ("GET", "/ss/status", ""),
            ("GET", "/metrics", ""),
            ("POST", "/v1/messages/count_tokens", count.as_str()),
        ] {
            let begun = Instant::now();
            assert_eq!(rig.ask(method, path, &[], body.as_bytes()).status, 200, "{path}");
            // 100 ms, five times as long on a loaded machine.
            assert!(begun.elapsed() < Duration::from_millis(500), "{path}: {:?}", begun.elapsed());
        }
    }
    assert!(rig.app.board.running().len() == 1, "the reply ended too early for this test");
    drop(stream);
    cancelled_and_alive(&rig, Duration::from_secs(2));
}

/// Rows 51 and 55.
#[test]
fn a_client_that_leaves_a_stream_ends_its_reply() {
    for reset in [false, true] {
        let rig = slow();
        let mut stream = send(&rig, CHAT, &streamed());
        let mut some = [0; 200];
        stream.read_exact(&mut some).unwrap();
        if reset {
            let linger = rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO));
            linger.unwrap();
        }
        drop(stream);
        cancelled_and_alive(&rig, Duration::from_secs(2));
    }
}

/// Row 52.
#[test]
fn a_client_that_leaves_the_queue_is_never_served() {
    let rig = slow();
    let first = send(&rig, CHAT, &streamed());
    writing(&rig);
    for body in [hello(), streamed()] {
        let second = send(&rig, CHAT, &body);
        let until = Instant::now() + Duration::from_secs(5);
        while rig.app.core().unwrap().hub.waiting() == 0 {
            assert!(Instant::now() < until);
            std::thread::sleep(Duration::from_millis(5));
        }
        drop(second);
        while rig.app.core().unwrap().hub.waiting() > 0 {
            assert!(Instant::now() < until, "its place is not free");
            std::thread::sleep(Duration::from_millis(5));
        }
        let done = &rig.app.board.done()[0];
        assert_eq!((done.ended.as_str(), done.output_tokens, done.ttft_ms), ("cancelled", 0, None));
    }
    drop(first);
    cancelled_and_alive(&rig, Duration::from_secs(2));
}

/// Row 53.
#[test]
fn a_client_that_leaves_while_its_prompt_is_read_ends_that() {
    for body in [hello(), streamed()] {
        let rig = Rig::with(script(json!([{ "text": "x", "prefill_ms": 20_000 }])));
        let stream = send(&rig, CHAT, &body);
        let until = Instant::now() + Duration::from_secs(5);
        while rig.app.board.running().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        drop(stream);
        cancelled_and_alive(&rig, Duration::from_secs(4));
    }
}

/// Row 54, in every dialect.
#[test]
fn a_client_that_leaves_before_its_whole_answer_ends_it() {
    for (path, more) in [
        (CHAT, json!({})),
        ("/v1/messages", json!({ "model": MODEL, "max_tokens": 1000 })),
        ("/api/chat", json!({ "stream": false })),
    ] {
        let rig = slow();
        let mut body = hello();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let stream = send(&rig, path, &body);
        writing(&rig);
        drop(stream);
        cancelled_and_alive(&rig, Duration::from_secs(2));
    }
}

/// Row 56: a client that has nothing more to say still listens, whole answers and streams alike.
#[test]
fn a_client_that_closes_its_sending_side_gets_its_reply() {
    for (path, body) in [
        (CHAT, hello()),
        (CHAT, streamed()),
        ("/api/chat", hello()),
        ("/api/chat", json!({ "messages": [{ "role": "user", "content": "hi" }], "stream": false })),
    ] {
        // Long enough that it is asked whether it is still there.
        let rig = Rig::with(script(json!([{ "text": "word ", "times": 60, "token_ms": 10, "prefill_ms": 400 }])));
        let mut stream = send(&rig, path, &body);
        stream.shutdown(Shutdown::Write).unwrap();
        let reply = Reply::read(&mut stream);
        assert!(reply.status == 200 && reply.whole, "{path} {body}: {reply:?}");
        assert_eq!(reply.text().matches("word").count(), 60, "{path}");
    }
}

/// The same while a prompt is read for longer than anybody is given the benefit of the doubt, in the API that has nothing to say
/// meanwhile; and one that is gone is noticed there, too, a request pipelined behind it or not.
#[test]
fn lines_of_json_are_kept_for_a_client_that_still_reads() {
    let rig = Rig::with(script(json!([{ "text": "done", "prefill_ms": 12_000 }])));
    let mut stream = send(&rig, "/api/chat", &hello());
    stream.shutdown(Shutdown::Write).unwrap();
    let reply = Reply::read(&mut stream);
    assert!(reply.status == 200 && reply.whole, "{reply:?}");
    for more in [Vec::new(), request("POST", "/api/chat", &[], &vec![b' '; 3 << 10])] {
        let mut stream = send(&rig, "/api/chat", &hello());
        let _ = stream.write_all(&more);
        let until = Instant::now() + Duration::from_secs(5);
        while rig.app.board.running().is_empty() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(5));
        }
        std::thread::sleep(Duration::from_millis(100));
        drop(stream);
        cancelled_and_alive(&rig, Duration::from_secs(4));
    }
}

/// Bodies that take long to read are read beside everything else.
#[test]
fn a_large_body_holds_nobody_up() {
    let rig = Rig::saying("ok");
    let rig = &rig;
    let numbers = "0,".repeat(900_000);
    let body =
        format!("{{\"messages\":[{{\"role\":\"user\",\"content\":\"x\"}}],\"metadata\":{{\"a\":[{numbers}0]}}}}");
    std::thread::scope(|scope| {
        let sent: Vec<_> = (0..6).map(|_| scope.spawn(|| rig.ask("POST", CHAT, &[], body.as_bytes()).status)).collect();
        while !sent.iter().all(|sent| sent.is_finished()) {
            let begun = Instant::now();
            assert_eq!(rig.get("/api/version").status, 200);
            // 100 ms, five times as long on a loaded machine.
            assert!(begun.elapsed() < Duration::from_millis(500), "{:?}", begun.elapsed());
        }
        sent.into_iter().for_each(|sent| assert_eq!(sent.join().unwrap(), 200));
    });
    let more = "0,".repeat(1_100_000);
    let reply = rig.ask("POST", CHAT, &[], format!("{{\"metadata\":{{\"a\":[{more}0]}}}}").as_bytes());
    assert!(reply.status == 400 && reply.text().contains("1000000 values"), "{}", reply.text());
}

/// A target that is no path, and a connection without a request when the server ends.
#[test]
fn a_request_for_a_connection_elsewhere_is_refused_and_an_idle_one_is_not_waited_for() {
    let settings = Settings { drain: Duration::from_secs(60), ..Settings::default() };
    let rig = Rig::set_up(script(json!([])), Setup { settings, ..Setup::default() });
    let mut stream = rig.connect();
    stream.write_all(b"CONNECT evil.example:443 HTTP/1.1\r\nhost: localhost\r\n\r\n").unwrap();
    assert_eq!(Reply::read(&mut stream).status, 405);
    let mut idle = [rig.connect(), rig.connect()];
    idle[1].write_all(b"GET /api/ver").unwrap();
    assert_eq!(rig.get("/api/version").status, 200);
    let begun = Instant::now();
    rig.stop(Stop::Draining);
    for stream in &mut idle {
        let _ = stream.read_to_end(&mut Vec::new());
    }
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

/// Row 57: a reader so slow that its connection fills is dropped; others never notice.
#[test]
fn a_slow_reader_holds_nobody_up_and_is_dropped() {
    // 3,000 tokens of 16 KB are more than all buffers between here and there hold.
    let mut script = script(json!([
        { "when": "endless", "text": "word and ".repeat(1 << 11), "times": 3000 },
        { "text": "ok" },
    ]));
    script.token_bytes = Some(16 << 10);
    let rig = Rig::with(script);
    let mut stream = send(&rig, "/api/chat", &json!({ "messages": [{ "role": "user", "content": "endless" }] }));
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    assert_eq!(rig.get("/api/version").status, 200);
    assert_eq!(rig.post(CHAT, &hello()).status, 200);
    let first = rig.app.board.done().into_iter().find(|done| done.path == "/api/chat").unwrap();
    assert_eq!(first.ended, "inference_error", "{first:?}");
    assert!(first.output_tokens < 3000, "{first:?}");
}

/// A reply that is gathered waits for nobody but the server: however quickly it comes, it is whole.
#[test]
fn a_long_reply_at_once_is_whole() {
    let mut script = script(json!([{ "text": "word and ".repeat(1 << 11), "times": 200 }]));
    script.token_bytes = Some(16 << 10);
    let rig = Rig::with(script);
    let reply = rig.post(CHAT, &hello());
    assert_eq!(reply.status, 200);
    assert_eq!(reply.text().matches("word").count(), 200 << 11);
}

/// Row 58.
#[test]
fn a_full_queue_turns_the_rest_away_and_serves_the_others_in_order() {
    let limits = Limits { queue: 3, ..Limits::default() };
    let rig = Rig::set_up(
        script(json!([{ "text": "word ", "times": 10, "token_ms": 5 }])),
        Setup { limits, ..Setup::default() },
    );
    let mut first = send(&rig, CHAT, &hello());
    writing(&rig);
    let mut waiting: Vec<TcpStream> = Vec::new();
    for place in 1..=3 {
        waiting.push(send(&rig, CHAT, &hello()));
        while rig.app.core().unwrap().hub.waiting() < place && rig.app.board.done().is_empty() {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let refused = (0..13).map(|_| rig.post(CHAT, &hello())).filter(|reply| reply.status == 503);
    let refused: Vec<Reply> = refused.collect();
    assert!(!refused.is_empty());
    for reply in &refused {
        assert_eq!(
            (reply.header("retry-after"), reply.json()["error"]["code"].as_str()),
            (Some("1"), Some("server_busy"))
        );
    }
    for stream in std::iter::once(&mut first).chain(&mut waiting) {
        assert_eq!(Reply::read(stream).status, 200);
    }
}

/// Rows 94 to 97.
#[test]
fn pages_and_names_are_let_in_or_not_before_any_work() {
    let gate = Gate { loopback_only: true, ..Gate::default() };
    let rig = Rig::set_up(script(json!([{ "text": "ok" }])), Setup { gate, ..Setup::default() });
    for origin in ["https://attacker.example", "null"] {
        for path in ["/api/chat", "/v1/messages", "/nope"] {
            let reply = rig.ask("POST", path, &[("origin", origin)], hello().to_string().as_bytes());
            assert_eq!((reply.status, reply.header("access-control-allow-origin")), (403, None), "{origin} {path}");
            assert!(reply.json().get("error").is_some());
        }
    }
    assert!(rig.app.board.done().is_empty());
    let reply = rig.ask("POST", CHAT, &[("origin", "http://localhost:3000")], hello().to_string().as_bytes());
    assert_eq!(reply.header("access-control-allow-origin"), Some("http://localhost:3000"));
    assert_eq!((reply.status, reply.header("vary")), (200, Some("Origin")));
    let asked = [
        ("origin", "http://localhost:3000"),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "x-stainless-os, x-new"),
        ("access-control-request-private-network", "true"),
    ];
    let reply = rig.ask("OPTIONS", CHAT, &asked, b"");
    assert_eq!(reply.status, 204);
    assert_eq!(reply.header("access-control-allow-private-network"), Some("true"));
    assert!(reply.header("access-control-allow-headers").unwrap().contains("x-new"));
    assert_eq!(reply.header("access-control-max-age"), Some("86400"));
    let mut stream = rig.connect();
    stream.write_all(b"GET /api/tags HTTP/1.1\r\nhost: evil.example\r\n\r\n").unwrap();
    assert_eq!(Reply::read(&mut stream).status, 403);
}

#[test]
fn a_key_is_asked_for_in_the_form_of_the_api() {
    let gate = Gate { key: Some("secret".into()), ..Gate::default() };
    let rig = Rig::set_up(script(json!([{ "text": "ok" }])), Setup { gate, ..Setup::default() });
    assert_eq!(rig.post(CHAT, &hello()).json()["error"]["code"], "invalid_api_key");
    assert_eq!(rig.post("/v1/messages", &hello()).json()["error"]["type"], "authentication_error");
    assert_eq!(rig.post("/api/chat", &hello()).status, 401);
    let body = hello().to_string();
    assert_eq!(rig.ask("POST", CHAT, &[("authorization", "Bearer secret")], body.as_bytes()).status, 200);
    assert_eq!(rig.get("/health").status, 200);
}

/// Rows 98 to 101.
#[test]
fn methods_heads_queries_and_slashes() {
    let rig = Rig::saying("ok");
    let reply = rig.get("/api/chat");
    assert_eq!((reply.status, reply.header("allow")), (405, Some("POST, OPTIONS")));
    assert_eq!(rig.post("/v1/models", &json!({})).header("allow"), Some("GET, HEAD, OPTIONS"));
    assert_eq!(rig.get("/nope").status, 404);
    assert_eq!(rig.get("//api/tags").status, 404);
    for (path, status) in [("/", 200), ("/api/tags", 200), ("/nope", 404)] {
        let mut stream = rig.connect();
        stream.write_all(&request("HEAD", path, &[], b"")).unwrap();
        assert_eq!(Reply::read_head(&mut stream).status, status, "{path}");
        // Nothing follows the head: the next answer on the same connection is where it should be.
        stream.write_all(&request("GET", "/api/version", &[], b"")).unwrap();
        assert!(Reply::read(&mut stream).json()["version"].is_string());
    }
    assert_eq!(rig.post("/api/chat?x=1", &hello()).status, 200);
    assert_eq!(rig.get("/api/tags/").status, 200);
    assert_eq!(rig.get("http://localhost/api/tags").status, 200);
    let mut stream = rig.connect();
    let two = [request("GET", "/api/version", &[], b""), request("GET", "/api/tags", &[], b"")].concat();
    stream.write_all(&two).unwrap();
    assert!(Reply::read(&mut stream).json()["version"].is_string());
    assert!(Reply::read(&mut stream).json()["models"].is_array());
}

/// Row 102.
#[test]
fn a_client_that_asks_before_it_sends_is_told_to_go_on() {
    let rig = Rig::saying("ok");
    let mut stream = rig.connect();
    let body = json!({ "messages": [{ "role": "user", "content": "x" }], "metadata": { "pad": "y".repeat(1 << 20) } })
        .to_string();
    write!(
        stream,
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: {}\r\n\r\n",
        body.len()
    )
    .unwrap();
    let mut answer = [0; 25];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HTTP/1.1 100 Continue\r\n\r\n");
    stream.write_all(body.as_bytes()).unwrap();
    assert_eq!(Reply::read(&mut stream).status, 200);
}

/// Row 103, in every dialect: whole answers are errors, streams end without a mark of success.
#[test]
fn a_reply_that_fails_is_an_error_wherever_it_stands() {
    let rig = Rig::with(script(json!([{ "text": "one two three", "fail": [2, "a planned fault"] }])));
    let chat = |more: Value| {
        let mut body = hello();
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body
    };
    let ms = chat(json!({ "model": MODEL, "max_tokens": 100 }));
    let rs = json!({ "input": "hi" });
    for (path, body) in [
        (CHAT, hello()),
        ("/v1/messages", ms.clone()),
        ("/v1/responses", rs.clone()),
        ("/api/chat", chat(json!({ "stream": false }))),
    ] {
        let reply = rig.post(path, &body);
        assert_eq!(reply.status, 500, "{path}");
        assert!(reply.text().contains("a planned fault"), "{path}");
    }
    for (path, mut body, success) in [
        (CHAT, hello(), "[DONE]"),
        ("/v1/messages", ms, "message_stop"),
        ("/v1/responses", rs, "response.completed"),
        ("/api/chat", hello(), "\"done\":true"),
    ] {
        body["stream"] = json!(true);
        let reply = rig.post(path, &body);
        assert_eq!(reply.status, 200, "{path}");
        assert!(
            reply.text().contains("a planned fault") && !reply.text().contains(success),
            "{path}: {}",
            reply.text()
        );
    }
}

/// Row 104.
#[test]
fn a_panic_takes_nothing_with_it() {
    let rig = Rig::with(script(json!([{ "when": "panic", "text": "one two three", "panic": 2 }, { "text": "ok" }])));
    let body = json!({ "messages": [{ "role": "user", "content": "panic" }] });
    assert_eq!(rig.post(CHAT, &body).status, 500);
    let mut streamed = body.clone();
    streamed["stream"] = json!(true);
    let reply = rig.post(CHAT, &streamed);
    assert!(reply.status == 200 && reply.whole && !reply.text().contains("[DONE]"));
    assert_eq!(rig.post(CHAT, &hello()).status, 200);
    assert!(rig.settles(Duration::from_secs(1)));
}

/// Row 49, and the silence of a body: both are closed by the server's clock, without an answer.
#[test]
fn a_request_that_does_not_come_is_closed() {
    let times = Times { slow_request: Duration::from_millis(600), ..Times::default() };
    let settings = Settings { times, ..Settings::default() };
    let rig = Rig::set_up(script(json!([])), Setup { settings, ..Setup::default() });
    let mut half = rig.connect();
    half.write_all(b"GET /api/ver").unwrap();
    let mut body = rig.connect();
    body.write_all(b"POST /api/chat HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100\r\n\r\n{").unwrap();
    let begun = Instant::now();
    assert_eq!(rig.get("/api/version").status, 200);
    for stream in [&mut half, &mut body] {
        let mut rest = Vec::new();
        let _ = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() && begun.elapsed() > Duration::from_millis(500), "{rest:?} {:?}", begun.elapsed());
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    }
}

/// A stream that is quiet says that it is alive, in each API's own way; a prompt that is read is told of.
#[test]
fn a_quiet_stream_says_that_it_is_alive() {
    let times = Times { quiet: Duration::from_millis(100), ..Times::default() };
    let settings = Settings { times, ..Settings::default() };
    let rig =
        Rig::set_up(script(json!([{ "text": "done", "prefill_ms": 1000 }])), Setup { settings, ..Setup::default() });
    let mut chat = hello();
    let mut messages = json!({ "model": MODEL, "max_tokens": 10, "messages": chat["messages"] });
    let mut responses = json!({ "input": "hi" });
    for body in [&mut chat, &mut messages, &mut responses] {
        body["stream"] = json!(true);
    }
    for (path, body, sign) in [
        (CHAT, &chat, ": keepalive"),
        ("/v1/messages", &messages, "event: ping"),
        ("/v1/responses", &responses, "event: response.in_progress"),
    ] {
        let text = rig.post(path, body).text();
        assert!(text.matches(sign).count() >= 4, "{path}: {text}");
    }
    assert!(rig.post(CHAT, &chat).text().contains("prompt tokens read"));
    // Lines of JSON have nothing to say that means nothing: every line is part of the reply.
    assert!(rig.post("/api/chat", &hello()).lines().iter().all(|line| line["message"].is_object()));
}

/// `--max-prefill-wait` while waiting: a status where the head is not out, an error frame where it is.
#[test]
fn a_first_token_that_does_not_come_in_time_ends_the_request() {
    let limits = Limits { prefill_wait: Some(Duration::from_millis(300)), ..Limits::default() };
    let script = script(json!([{ "text": "late", "prefill_ms": 5000 }]));
    let rig = Rig::set_up(script, Setup { limits, ..Setup::default() });
    let reply = rig.post(CHAT, &hello());
    assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (503, Some("prefill_deadline_exceeded")));
    let reply = rig.post(CHAT, &streamed());
    assert!(reply.status == 200 && reply.text().contains("prefill_deadline_exceeded"), "{}", reply.text());
    assert!(!reply.text().contains("[DONE]"));
    // One that still waits for its turn when its time is over, too.
    std::thread::scope(|scope| {
        let both = [(); 2].map(|()| scope.spawn(|| rig.post(CHAT, &hello()).status));
        assert_eq!(both.map(|reply| reply.join().unwrap()), [503, 503]);
    });
    assert!(rig.settles(Duration::from_secs(2)), "a request goes on");
    let ended: Vec<String> = rig.app.board.done().into_iter().map(|done| done.ended).collect();
    assert_eq!(ended, ["prefill_deadline_exceeded"; 4], "no client left");
    assert!(rig.get("/metrics").text().contains("ss_cancelled_total 0\n"));
}

/// The first signal lets what runs end and takes nothing new; what does not end in time is told why.
#[test]
fn a_server_that_ends_lets_streams_end_or_says_why() {
    for (tokens, whole) in [(20, true), (100_000, false)] {
        let settings = Settings { drain: Duration::from_millis(1500), ..Settings::default() };
        let script = script(json!([{ "text": "word ", "times": tokens.min(3000), "token_ms": 10 }]));
        let rig = Rig::set_up(script, Setup { settings, ..Setup::default() });
        let mut stream = send(&rig, CHAT, &streamed());
        let idle = rig.connect();
        writing(&rig);
        let begun = Instant::now();
        rig.stop(Stop::Draining);
        let text = Reply::read(&mut stream).text();
        assert_eq!(text.contains("[DONE]"), whole, "{text}");
        assert_eq!(text.contains("server_stopping"), !whole, "{text}");
        assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
        drop(idle);
    }
}
