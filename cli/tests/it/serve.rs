//! Owns: `ss serve` as its operator meets it: the port, the log, signals, settings; and that it answers as `ss run` does.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, ChildStderr, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Place, SS, nano, ss};

/// A server that is killed when it is dropped.
struct Server {
    child: Child,
    stderr: BufReader<ChildStderr>,
    port: u16,
}

impl Server {
    /// A server on a free port, once the model is there.
    fn start(place: &Place, args: &[&str]) -> Self {
        let mut command = place.command(SS);
        command.args(["serve", "--port", "0", "--backend", "reference", "--model"]).arg(nano()).args(args);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut said = String::new();
        // In lines for programs, too.
        while !said.contains("ready: ") {
            assert!(stderr.read_line(&mut said).unwrap() > 0, "{said}");
        }
        let port = said.split("http://127.0.0.1:").nth(1).unwrap();
        let port = port.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
        Server { child, stderr, port }
    }

    /// Sends a request.
    fn send(&self, path: &str, headers: &str, body: &Value) -> TcpStream {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let body = body.to_string();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}").unwrap();
        stream
    }

    /// Sends a request; gives its answer, head and all.
    fn ask(&self, path: &str, headers: &str, body: &Value) -> String {
        let mut answer = String::new();
        self.send(path, headers, body).read_to_string(&mut answer).unwrap();
        answer
    }

    /// Waits for the end; gives the exit code, what was said, and how long it took.
    fn end(mut self) -> (Option<i32>, String, Duration) {
        let begun = Instant::now();
        let mut said = String::new();
        let _ = self.stderr.read_to_string(&mut said);
        (self.child.wait().unwrap().code(), said, begun.elapsed())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hello(more: Value) -> Value {
    let mut body = json!({ "messages": [{ "role": "user", "content": "How do I make tea?" }], "temperature": 0 });
    body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    body
}

fn content(answer: &str) -> String {
    let body = answer.split("\r\n\r\n").nth(1).unwrap();
    let body: Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    body["choices"][0]["message"]["content"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
}

#[test]
fn a_server_answers_as_a_run_does_again_and_again() {
    let place = Place::new();
    let run = place.run(["run", "How do I make tea?", "--temperature", "0", "--backend", "reference", "--model"]);
    let mut run = run;
    run.command.arg(nano());
    let expected = run.answer();
    let server = Server::start(&place, &["--slots", "floor"]);
    for _ in 0..2 {
        assert_eq!(content(&server.ask("/v1/chat/completions", "", &hello(json!({})))), expected.trim_end());
    }
}

/// Row 109 of the robustness table.
#[test]
fn a_port_that_is_taken_is_told_before_anything_is_loaded() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"replies": []}"#);
    let server = Server::start(&place, &["--script", script.to_str().unwrap()]);
    let begun = Instant::now();
    let refused = ss(&["serve", "--port", &server.port.to_string()]).refused(2);
    assert!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let port = server.port;
    assert_eq!(
        refused,
        format!("port {port} of 127.0.0.1 is in use: stop the other server, or choose another port with --port")
    );
}

#[test]
fn what_cannot_be_is_refused_before_anything_is_loaded() {
    let refused = ss(&["serve", "--host", "203.0.113.7", "--port", "0"]).refused(2);
    assert!(refused.starts_with("203.0.113.7:0 cannot be listened on"), "{refused}");
    let refused = ss(&["serve", "--cors-origin", "*"]).refused(2);
    assert!(refused.contains("--cors-origin") && refused.contains("https://chat.example"), "{refused}");
    let refused = ss(&["serve", "--port", "0", "--model", "nowhere"]).refused(2);
    assert!(refused.contains("nowhere"), "{refused}");
    let refused = ss(&["serve", "--port", "0", "--log-file", "/nowhere/log"]).refused(2);
    assert!(refused.starts_with("`--log-file`: `/nowhere/log` cannot be written"), "{refused}");
    let refused = ss(&["serve", "--port", "0", "--script", "nowhere"]).refused(2);
    assert!(refused.starts_with("`--script`: `nowhere` cannot be read"), "{refused}");
}

/// Row 110 of the robustness table.
#[test]
fn the_first_signal_lets_streams_end_and_the_second_does_not() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"replies": [{"text": "word ", "times": 4000, "token_ms": 20}]}"#);
    for twice in [false, true] {
        let server = Server::start(&place, &["--script", script.to_str().unwrap(), "--drain-seconds", "2"]);
        let mut stream = server.send("/v1/chat/completions", "", &hello(json!({ "stream": true })));
        stream.read_exact(&mut [0; 400]).unwrap();
        crate::signals::send(&server.child, "-TERM");
        if twice {
            std::thread::sleep(Duration::from_millis(200));
            crate::signals::send(&server.child, "-TERM");
        }
        let mut rest = String::new();
        let _ = stream.read_to_string(&mut rest);
        assert!(!rest.contains("[DONE]"), "{rest}");
        assert!(twice || rest.contains("server_stopping"), "{rest}");
        let (code, said, took) = server.end();
        assert_eq!(code, Some(0), "{said}");
        // Two seconds and a moment, or a moment; five times as long on a loaded machine.
        assert!(took < Duration::from_secs(if twice { 3 } else { 6 }), "{took:?}");
    }
}

#[test]
fn the_log_has_a_line_a_request_and_no_prompt_unless_it_is_asked_for() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"replies": [{"text": "a reply that nobody may log"}]}"#);
    for (args, shown) in [(&[][..], false), (&["--log-prompts"], true)] {
        let file = place.path("log.json");
        let mut all =
            vec!["--script", script.to_str().unwrap(), "--log-format", "json", "--log-file", file.to_str().unwrap()];
        all.extend(args);
        let server = Server::start(&place, &all);
        server.ask("/v1/chat/completions", "", &hello(json!({})));
        crate::signals::send(&server.child, "-TERM");
        let (code, said, _) = server.end();
        assert_eq!(code, Some(0), "{said}");
        let log = std::fs::read_to_string(&file).unwrap();
        let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let line = lines.iter().find(|line| line["path"] == "/v1/chat/completions" && line["ended"] == "stop");
        let line = line.unwrap_or_else(|| panic!("{log}"));
        for field in ["request", "input", "cached", "cache", "output", "ttft_ms", "decode_rate"] {
            assert!(!line[field].is_null(), "{field}: {line}");
        }
        assert_eq!(log.contains("How do I make tea"), shown, "{log}");
        assert!(!log.contains("nobody may log"), "{log}");
        assert!(said.lines().all(|line| serde_json::from_str::<Value>(line).is_ok()), "{said}");
        std::fs::remove_file(&file).unwrap();
    }
}

#[test]
fn a_key_comes_from_a_variable_and_is_never_shown() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"replies": [{"text": "ok"}]}"#);
    std::fs::write(place.home().join("config.toml"), "api-key = \"secret-of-the-file\"\n").unwrap();
    let server = Server::start(&place, &["--script", script.to_str().unwrap()]);
    assert!(server.ask("/v1/chat/completions", "", &hello(json!({}))).starts_with("HTTP/1.1 401"));
    let key = "authorization: Bearer secret-of-the-file\r\n";
    assert!(server.ask("/v1/chat/completions", key, &hello(json!({}))).starts_with("HTTP/1.1 200"));
    let help = ss(&["serve", "--help"]).env("SS_API_KEY", "secret-of-the-variable").answer();
    assert!(!help.contains("secret-of"), "{help}");
}

/// A reader of the log that takes nothing does not hold a request up.
#[test]
fn a_log_that_nobody_reads_blocks_nobody() {
    let place = Place::new();
    let script = place.write("script.json", r#"{"replies": [{"text": "ok"}]}"#);
    // Standard error is a pipe that is not read from here on: it holds some 64 KB.
    let server = Server::start(&place, &["--script", script.to_str().unwrap(), "--log-level", "debug"]);
    for _ in 0..600 {
        assert!(server.ask("/v1/chat/completions", "", &hello(json!({}))).starts_with("HTTP/1.1 200"));
    }
}
