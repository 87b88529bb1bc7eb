//! Owns: `GET /metrics`: counters in Prometheus' text format (server.md section 4; every name is in docs/serving.md).
//! Invariants: a scrape reads what is written on the board, and waits for nothing.

use std::fmt::{Display, Write};

use crate::http::answer::Answer;
use crate::http::route::Call;

/// What a metric is.
enum Sort {
    Counter,
    Gauge,
}

/// The text of a scrape.
#[derive(Default)]
struct Page(String);

impl Page {
    fn head(&mut self, name: &str, sort: Sort, about: &str) {
        let sort = match sort {
            Sort::Counter => "counter",
            Sort::Gauge => "gauge",
        };
        let _ = writeln!(self.0, "# HELP {name} {about}\n# TYPE {name} {sort}");
    }

    fn put(&mut self, name: &str, sort: Sort, about: &str, value: impl Display) {
        self.head(name, sort, about);
        let _ = writeln!(self.0, "{name} {value}");
    }
}

/// Answers a scrape.
pub fn answer(call: &Call) -> Answer {
    let (totals, engine, hub) = (call.app.board.totals(), (call.core.watch)(), &call.core.hub);
    let mut page = Page::default();
    page.head("ss_requests_total", Sort::Counter, "Answers by path and status.");
    for ((path, status), count) in &totals.requests {
        let _ = writeln!(page.0, "ss_requests_total{{path=\"{path}\",status=\"{status}\"}} {count}");
    }
    page.put("ss_queue_length", Sort::Gauge, "Requests that wait for the engine.", hub.waiting());
    page.put("ss_generating", Sort::Gauge, "Whether a reply is being made.", u8::from(hub.is_busy()));
    page.put("ss_prompt_tokens_total", Sort::Counter, "Prompt tokens of requests that ended.", totals.prompt_tokens);
    page.put(
        "ss_cached_tokens_total",
        Sort::Counter,
        "Of those, tokens that were not read anew.",
        totals.cached_tokens,
    );
    page.put("ss_output_tokens_total", Sort::Counter, "Tokens written.", totals.output_tokens);
    page.put("ss_cancelled_total", Sort::Counter, "Requests that were cancelled.", totals.cancelled);
    page.put("ss_prefill_seconds_total", Sort::Counter, "Time of reading prompts.", totals.prefill.as_secs_f64());
    page.put("ss_decode_seconds_total", Sort::Counter, "Time of writing replies.", totals.decode.as_secs_f64());
    page.put(
        "ss_expert_hits_total",
        Sort::Counter,
        "Times that an expert was in a slot when it was wanted.",
        engine.hits,
    );
    page.put("ss_expert_misses_total", Sort::Counter, "Times that it was not.", engine.misses);
    page.put("ss_disk_read_bytes_total", Sort::Counter, "Bytes read from the model's files.", engine.disk_bytes);
    page.put("ss_disk_wait_seconds_total", Sort::Counter, "Time that was waited for them.", engine.disk_wait_seconds);
    page.put("ss_pool_slots", Sort::Gauge, "Slots of the expert pool.", engine.slots);
    page.put("ss_pool_experts", Sort::Gauge, "Experts of all layers.", engine.experts);
    let resident: u64 = engine.memory.iter().map(|part| part.bytes).sum();
    page.put("ss_resident_bytes", Sort::Gauge, "Bytes that the engine has allocated.", resident);
    page.put("ss_uptime_seconds", Sort::Gauge, "Time since the start.", call.app.board.uptime().as_secs_f64());
    Answer::whole("text/plain; version=0.0.4; charset=utf-8", page.0.into_bytes())
}
