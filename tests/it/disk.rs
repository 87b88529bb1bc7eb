//! A disk that fails, fails the request with the path, and the engine lives on; a request that is cancelled stops at the
//! next layer (engine.md 5.2, I6).

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ss_backend::Arithmetic;
use ss_checkpoint::{Checkpoint, FileRange};
use ss_model::{Cancel, Error, Model, ModelOptions, Pass, PassMutation, Prompt, State, Want};
use ss_reference::{Options, Reference};
use ss_stream::{PoolGeometry, PoolSize, RecordSource, StoreOptions};
use ss_tests::golden::{Golden, goldens};

/// A disk with a trap: the read of that number does something else.
struct Trapped {
    checkpoint: Arc<Checkpoint>,
    reads: AtomicU64,
    trap: AtomicU64,
    /// Cancelled at the trap; without it, the read fails.
    cancel: Option<Cancel>,
}

const NEVER: u64 = u64::MAX;
/// Rows of a pass where a prompt is read in several.
const PASS: u32 = 64;

impl RecordSource for Trapped {
    fn read(&self, range: FileRange, into: &mut [u8]) -> ss_checkpoint::Result<()> {
        let read = self.reads.fetch_add(1, Ordering::SeqCst);
        if read == self.trap.load(Ordering::SeqCst) {
            match &self.cancel {
                Some(cancel) => cancel.cancel(),
                // A range past the end: what a file that was cut short does.
                None => return self.checkpoint.read(FileRange { offset: u64::MAX / 2, ..range }, into),
            }
        }
        self.checkpoint.read(range, into)
    }
}

struct Set {
    model: Model,
    disk: Arc<Trapped>,
    prompt: Vec<u32>,
    files: Vec<PathBuf>,
}

/// A model whose prompts are read in passes that share, if they are longer than [`PASS`].
fn set(golden: &Golden, cancel: Option<Cancel>) -> Set {
    let checkpoint = Arc::new(Checkpoint::open(&golden.model()).unwrap());
    let disk = Arc::new(Trapped { checkpoint: checkpoint.clone(), reads: 0.into(), trap: NEVER.into(), cancel });
    let slots = PoolSize::Smallest.resolve(PoolGeometry::from(checkpoint.geometry())).unwrap();
    let store = StoreOptions { source: Some(disk.clone()), row_cache_bytes: 0, ..StoreOptions::new(slots) };
    let backend = Arc::new(Reference::new(Options::default()).unwrap());
    let files = checkpoint.files().iter().map(|f| f.path().to_path_buf()).collect();
    let options =
        ModelOptions { store, arithmetic: Arithmetic::Exact, read_group: 4 * PASS, mutation: PassMutation::None };
    let model = Model::load(backend, checkpoint, options, &mut |_, _| {}).unwrap();
    Set { model, disk, prompt: golden.prompt(64), files }
}

#[test]
fn a_failing_read_names_the_file_and_the_next_request_is_served() {
    for golden in goldens() {
        let mut set = set(&golden, None);
        let ask = |set: &mut Set| {
            let mut state = set.model.new_state().unwrap();
            let pass = Pass::prompt(&set.prompt, Want::Last);
            let answer = set.model.forward(&mut state, &pass, &Cancel::default()).map(|output| output.logits);
            (state, answer)
        };
        let (_, right) = ask(&mut set);
        let right = right.unwrap();
        let all = set.disk.reads.load(Ordering::SeqCst);
        // Traps spread over the pass: n-gram rows, first experts, last experts.
        for trap in [0, 1, all / 3, 3 * all / 4] {
            set.disk.reads.store(0, Ordering::SeqCst);
            set.disk.trap.store(trap, Ordering::SeqCst);
            let (mut state, failed) = ask(&mut set);
            let message = match failed {
                Err(error) => error.to_string(),
                Ok(_) => panic!("the read was trapped"),
            };
            assert!(set.files.iter().any(|file| message.contains(&*file.display().to_string())), "{message}");
            let again = set.model.forward(&mut state, &Pass::prompt(&set.prompt, Want::Last), &Cancel::default());
            assert!(matches!(again, Err(Error::TornState)), "a half-updated state is never used");
            set.disk.trap.store(NEVER, Ordering::SeqCst);
            let (_, next) = ask(&mut set);
            assert!(next.unwrap() == right, "the next request is served, bit for bit");
        }
    }
}

#[test]
fn a_failing_read_ends_passes_that_share_and_the_next_request_is_served() {
    for golden in goldens() {
        let mut set = set(&golden, None);
        let ids = golden.prompt(300);
        let prompt = Prompt { ids: &ids, positions: None, pass: PASS, want: Want::Last };
        let ask = |set: &mut Set, state: &mut State| {
            set.disk.reads.store(0, Ordering::SeqCst);
            set.model.read(state, &prompt, &Cancel::default(), &mut |_| {}).map(|output| output.logits)
        };
        let mut state = set.model.new_state().unwrap();
        let right = ask(&mut set, &mut state).unwrap();
        assert!(set.model.store().counters().experts.shared_groups > 0, "reads were shared");
        let all = set.disk.reads.load(Ordering::SeqCst);
        // Rows of n-grams, read beside everything else, and experts.
        for trap in [0, all / 4, all / 2, 3 * all / 4] {
            set.disk.trap.store(trap, Ordering::SeqCst);
            let mut state = set.model.new_state().unwrap();
            let message = ask(&mut set, &mut state).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(set.files.iter().any(|file| message.contains(&*file.display().to_string())), "{trap}: {message}");
            assert!(matches!(ask(&mut set, &mut state), Err(Error::TornState)), "a half-updated state is never used");
            set.disk.trap.store(NEVER, Ordering::SeqCst);
            let mut state = set.model.new_state().unwrap();
            assert!(ask(&mut set, &mut state).unwrap() == right, "the next request is served, bit for bit");
        }
    }
}

#[test]
fn a_cancelled_request_stops_at_the_next_layer() {
    for golden in goldens() {
        let cancel = Cancel::default();
        let mut set = set(&golden, Some(cancel.clone()));
        let mut state = set.model.new_state().unwrap();
        let pass = Pass::prompt(&set.prompt, Want::Last);
        set.model.forward(&mut state, &pass, &cancel).unwrap();
        let all = set.disk.reads.swap(0, Ordering::SeqCst);
        set.disk.trap.store(all / 4, Ordering::SeqCst);
        let mut state = set.model.new_state().unwrap();
        let stopped = set.model.forward(&mut state, &pass, &cancel);
        assert!(matches!(stopped, Err(Error::Cancelled)));
        let read = set.disk.reads.load(Ordering::SeqCst);
        assert!(read > all / 4 && read < all / 2 + all / 4, "{read} of {all} reads before it stopped");
    }
}
