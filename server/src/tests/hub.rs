//! Owns: the queue and its one thread, with an engine that takes a step when it is told to.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use ss_generate::SamplerSettings;
use ss_model::Cancel;
use ss_text::{Event, ReplyOptions};

use crate::engine::{Ended, Engine, Job, Outcome, Piece, Watch};
use crate::hub::*;
use crate::refusal::{Code, Refusal};
use crate::snapshot::Board;

/// Tells one text for each token of the limit, and waits for each until it is let go on.
struct Paced {
    steps: std::sync::mpsc::Receiver<()>,
    begun: Arc<Mutex<Vec<u32>>>,
}

impl Engine for Paced {
    fn answer(&mut self, job: Job, cancel: &Cancel, tell: &mut dyn FnMut(Piece)) -> Result<Outcome, Refusal> {
        self.begun.lock().push(job.prompt[0]);
        let mut ended = Ended::Stop;
        for _ in 0..job.max_tokens.unwrap_or(0) {
            self.steps.recv().unwrap();
            if cancel.is_cancelled() {
                ended = Ended::Cancelled;
                break;
            }
            assert_ne!(job.prompt[0], 13, "a planned fault");
            tell(Piece::Event(Event::Text("x".into())));
        }
        let prompt = job.prompt.len() as u32;
        let time = Duration::from_secs(1);
        Ok(Outcome { ended, prompt, cached: 0, output: 0, reasoning: 0, prefill: time, decode: time })
    }

    fn watch(&self) -> Watch {
        Arc::new(Default::default)
    }
}

fn job(first: u32, prompt: usize) -> Job {
    Job {
        prompt: vec![first; prompt],
        max_tokens: Some(1),
        window: 100,
        sampling: SamplerSettings::greedy(),
        reply: ReplyOptions::default(),
        constraint: None,
        logprobs: None,
        prompt_logprobs: false,
    }
}

fn tag(number: u64) -> Tag {
    Tag { number, id: format!("req_{number}"), path: "/api/chat" }
}

struct Bench {
    hub: Arc<Hub>,
    steps: std::sync::mpsc::Sender<()>,
    begun: Arc<Mutex<Vec<u32>>>,
    thread: std::thread::JoinHandle<()>,
}

fn bench(limits: Limits) -> Bench {
    let hub = Hub::new(limits, Arc::new(Board::new()));
    let (steps, receiver) = std::sync::mpsc::channel();
    let begun: Arc<Mutex<Vec<u32>>> = Arc::default();
    let mut engine = Paced { steps: receiver, begun: begun.clone() };
    let thread = std::thread::spawn({
        let hub = hub.clone();
        move || hub.run(&mut engine)
    });
    Bench { hub, steps, begun, thread }
}

async fn last(ticket: &mut Ticket) -> Option<Note> {
    let mut last = None;
    while let Some(note) = ticket.next().await {
        let over = matches!(note, Note::Ended(_) | Note::Failed(_));
        last = Some(note);
        if over {
            break;
        }
    }
    last
}

#[tokio::test]
async fn replies_are_made_in_the_order_of_their_coming() {
    let bench = bench(Limits::default());
    let mut tickets: Vec<Ticket> =
        (1..=4).map(|n| bench.hub.submit(tag(n), job(n as u32, 1), Reader::Client).unwrap()).collect();
    (0..4).for_each(|_| bench.steps.send(()).unwrap());
    for ticket in &mut tickets {
        assert!(matches!(last(ticket).await, Some(Note::Ended(_))));
    }
    assert_eq!(*bench.begun.lock(), [1, 2, 3, 4]);
    bench.hub.drain();
    bench.thread.join().unwrap();
}

#[tokio::test]
async fn a_full_queue_refuses_and_a_dropped_ticket_frees_its_place_and_never_starts() {
    let bench = bench(Limits { queue: 1, ..Limits::default() });
    let mut first = bench.hub.submit(tag(1), job(1, 1), Reader::Client).unwrap();
    assert!(matches!(first.next().await, Some(Note::Began)));
    let second = bench.hub.submit(tag(2), job(2, 1), Reader::Client).unwrap();
    assert_eq!(bench.hub.submit(tag(3), job(3, 1), Reader::Client).err().unwrap().code, Code::Busy);
    drop(second);
    let mut fourth = bench.hub.submit(tag(4), job(4, 1), Reader::Client).unwrap();
    (0..2).for_each(|_| bench.steps.send(()).unwrap());
    assert!(matches!(last(&mut fourth).await, Some(Note::Ended(_))));
    assert_eq!(*bench.begun.lock(), [1, 4]);
}

#[tokio::test]
async fn a_panic_ends_its_own_reply_only() {
    let bench = bench(Limits::default());
    let mut bad = bench.hub.submit(tag(1), job(13, 1), Reader::Client).unwrap();
    let mut good = bench.hub.submit(tag(2), job(2, 1), Reader::Client).unwrap();
    (0..2).for_each(|_| bench.steps.send(()).unwrap());
    assert!(matches!(last(&mut bad).await, Some(Note::Failed(refusal)) if refusal.code == Code::Inference));
    assert!(matches!(last(&mut good).await, Some(Note::Ended(_))));
}

#[tokio::test]
async fn a_prompt_that_would_be_read_too_late_is_refused() {
    let bench = bench(Limits { prefill_wait: Some(Duration::from_secs(10)), ..Limits::default() });
    bench.steps.send(()).unwrap();
    bench.steps.send(()).unwrap();
    // A short prompt took a second: that says nothing of long ones.
    last(&mut bench.hub.submit(tag(1), job(1, 5), Reader::Client).unwrap()).await;
    last(&mut bench.hub.submit(tag(2), job(1, 1000), Reader::Client).unwrap()).await;
    // A thousand tokens took a second.
    assert!(bench.hub.submit(tag(3), job(2, 8000), Reader::Client).is_ok());
    assert_eq!(bench.hub.submit(tag(4), job(3, 12_000), Reader::Client).err().unwrap().code, Code::PrefillWait);
}

#[tokio::test]
async fn stopping_ends_what_waits_and_what_runs() {
    let bench = bench(Limits::default());
    let mut running = bench.hub.submit(tag(1), job(1, 1), Reader::Client).unwrap();
    assert!(matches!(running.next().await, Some(Note::Began)));
    let mut waiting = bench.hub.submit(tag(2), job(2, 1), Reader::Client).unwrap();
    bench.hub.stop();
    bench.steps.send(()).unwrap();
    for ticket in [&mut running, &mut waiting] {
        assert!(matches!(last(ticket).await, Some(Note::Failed(refusal)) if refusal.code == Code::Stopping));
    }
    assert_eq!(bench.hub.submit(tag(3), job(3, 1), Reader::Client).err().unwrap().code, Code::Stopping);
    bench.thread.join().unwrap();
    assert_eq!(*bench.begun.lock(), [1]);
}
