//! Owns: the events of a reply, in their order, and the reply as a whole, which is where they lead.
//! Invariants: events are numbered from 0 without a gap; an item is added before its first delta; a call is told only when it is
//! whole; nothing follows the last event.

use serde_json::{Value, json};
use ss_text::Event;

use super::echo::{Echo, State};
use super::items::{Called, Growing, Kind};
use super::tools::Offered;
use crate::engine::{Outcome, Piece};
use crate::flow::{Start, Watched};
use crate::http::stream::{SSE, Writer, event};
use crate::refusal::Refusal;

/// The writer of events.
pub struct Events {
    echo: Echo,
    offered: Offered,
    /// How thoughts are told.
    thoughts: Kind,
    watched: Watched,
    /// Events so far.
    count: u64,
    /// Items that are whole.
    output: Vec<Value>,
    open: Option<Growing>,
    /// Prompt tokens read, of how many.
    read: (usize, usize),
    /// Why the reply cannot be used.
    wrong: Option<Refusal>,
}

impl Events {
    /// Nothing yet.
    pub fn new(echo: Echo, offered: Offered, summary: bool, start: Start) -> Self {
        Events {
            echo,
            offered,
            thoughts: if summary { Kind::Summary } else { Kind::Thoughts },
            watched: Watched::new(start),
            count: 0,
            output: Vec::new(),
            open: None,
            read: (0, 0),
            wrong: None,
        }
    }

    /// The reply of these events, whole.
    ///
    /// # Errors
    /// When it cannot be used.
    pub fn whole(mut self, events: Vec<Event>, outcome: &Outcome) -> Result<Value, Refusal> {
        let mut unread = Vec::new();
        for told in events {
            self.told(told, &mut unread);
            unread.clear();
        }
        let status = self.finish(outcome, &mut unread)?;
        Ok(self.response(status, Some(outcome)))
    }

    fn response(&self, status: &'static str, outcome: Option<&Outcome>) -> Value {
        self.echo.response(&State { status, output: &self.output, outcome, error: None })
    }

    /// Writes an event: its type, its number, and its own fields.
    fn write(&mut self, kind: &str, own: Value, out: &mut Vec<u8>) {
        let mut data = json!({ "type": kind, "sequence_number": self.count });
        if let (Some(data), Value::Object(mut own)) = (data.as_object_mut(), own) {
            data.append(&mut own);
        }
        self.count += 1;
        event(out, Some(kind), &data.to_string());
    }

    fn told(&mut self, told: Event, out: &mut Vec<u8>) {
        self.watched.see(&told);
        match told {
            Event::Reasoning(text) => self.grow(self.thoughts, &text, out),
            Event::Text(text) => self.grow(Kind::Answer, &text, out),
            Event::CallEnd { name, arguments, .. } => self.call(&name, arguments, out),
            Event::CallStart { .. } | Event::CallArguments { .. } | Event::Stop(_) | Event::Failed(_) => {}
        }
    }

    /// Adds text to the item of its kind, which begins here if it is not the last one.
    fn grow(&mut self, kind: Kind, text: &str, out: &mut Vec<u8>) {
        let mut item = match self.open.take() {
            Some(open) if open.kind == kind => open,
            other => {
                self.open = other;
                self.close("completed", out);
                self.begin_item(kind, out)
            }
        };
        item.text += text;
        let mut own = self.place(&item);
        own["delta"] = json!(text);
        if kind == Kind::Answer {
            own["logprobs"] = json!([]);
        }
        self.write(&format!("{}.delta", item.events().1), own, out);
        self.open = Some(item);
    }

    fn begin_item(&mut self, kind: Kind, out: &mut Vec<u8>) -> Growing {
        let item = Growing::new(kind);
        let own = json!({ "output_index": self.output.len(), "item": item.begun() });
        self.write("response.output_item.added", own, out);
        let mut own = self.place(&item);
        own["part"] = item.part("");
        self.write(&format!("{}.added", item.events().0), own, out);
        item
    }

    /// Which part of which item an event is about.
    fn place(&self, item: &Growing) -> Value {
        json!({ "item_id": item.id, "output_index": self.output.len(), item.index(): 0 })
    }

    /// Ends the item that grows, if there is one.
    fn close(&mut self, status: &str, out: &mut Vec<u8>) {
        let Some(item) = self.open.take() else { return };
        let (part, text) = item.events();
        let mut own = self.place(&item);
        own["text"] = json!(item.text);
        if item.kind == Kind::Answer {
            own["logprobs"] = json!([]);
        }
        self.write(&format!("{text}.done"), own, out);
        let mut own = self.place(&item);
        own["part"] = item.part(&item.text);
        self.write(&format!("{part}.done"), own, out);
        self.done(item.whole(status), out);
    }

    fn done(&mut self, item: Value, out: &mut Vec<u8>) {
        self.write("response.output_item.done", json!({ "output_index": self.output.len(), "item": item }), out);
        self.output.push(item);
    }

    /// Tells a call, whole.
    fn call(&mut self, name: &str, arguments: String, out: &mut Vec<u8>) {
        self.close("completed", out);
        let called = match Called::new(name, self.offered.find(name), arguments) {
            Ok(called) => called,
            Err(refusal) => return self.wrong = Some(refusal),
        };
        let at = self.output.len();
        self.write("response.output_item.added", json!({ "output_index": at, "item": called.begun }), out);
        let own = json!({ "item_id": called.id, "output_index": at, "delta": called.given });
        self.write(&format!("{}.delta", called.events), own, out);
        let own = json!({ "item_id": called.id, "output_index": at, called.field: called.given });
        self.write(&format!("{}.done", called.events), own, out);
        self.done(called.whole(), out);
    }

    /// Ends the reply; gives its status.
    fn finish(&mut self, outcome: &Outcome, out: &mut Vec<u8>) -> Result<&'static str, Refusal> {
        self.watched.check(outcome)?;
        if let Some(refusal) = self.wrong.take() {
            return Err(refusal);
        }
        let cut = outcome.ended.is_cut();
        self.close(if cut { "incomplete" } else { "completed" }, out);
        // A whole call is worth making, whatever was cut after it.
        Ok(if cut && self.watched.calls() == 0 { "incomplete" } else { "completed" })
    }
}

impl Writer for Events {
    fn kind(&self) -> &'static str {
        SSE
    }

    fn begin(&mut self, out: &mut Vec<u8>) {
        for kind in ["response.created", "response.in_progress"] {
            let response = self.response("in_progress", None);
            self.write(kind, json!({ "response": response }), out);
        }
    }

    fn piece(&mut self, piece: Piece, out: &mut Vec<u8>) {
        match piece {
            Piece::Reading { done, total } => self.read = (done, total),
            Piece::Event(told) if self.wrong.is_none() => self.told(told, out),
            Piece::Event(_) | Piece::Prompt(_) | Piece::Token(_) => {}
        }
    }

    fn quiet(&mut self, out: &mut Vec<u8>) {
        let mut own = json!({ "response": self.response("in_progress", None) });
        if self.read.0 < self.read.1 {
            own["prompt_progress"] = json!({ "read": self.read.0, "total": self.read.1 });
        }
        self.write("response.in_progress", own, out);
    }

    fn end(&mut self, outcome: &Outcome, out: &mut Vec<u8>) {
        match self.finish(outcome, out) {
            Ok(status) => {
                let response = self.response(status, Some(outcome));
                self.write(&format!("response.{status}"), json!({ "response": response }), out);
            }
            Err(refusal) => self.fail(&refusal, out),
        }
    }

    fn fail(&mut self, refusal: &Refusal, out: &mut Vec<u8>) {
        let response = self.echo.response(&State {
            status: "failed",
            output: &self.output,
            outcome: None,
            error: Some((refusal.code.name(), &refusal.message)),
        });
        self.write("response.failed", json!({ "response": response }), out);
    }
}
