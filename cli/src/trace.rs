//! Owns: the file of `--trace-experts`, written while the model runs (engine.md 5.8).
//! Invariants: whole tokens are handed to the system as soon as their pass ends; a disk that is full ends the trace, not
//! the answer, and is said at the end.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, Result};
use ss_backend::Form;
use ss_checkpoint::Checkpoint;
use ss_model::{Trace, TracedPass};
use ss_replay::{Assembly, Error, Shape, TracePlace, TraceWriter};

/// The file, shared by the model and who waits for its end.
#[derive(Clone)]
pub struct TraceFile(Arc<Mutex<Writing>>);

struct Writing {
    assembly: Assembly,
    writer: TraceWriter,
    failed: Option<Error>,
}

impl TraceFile {
    /// A trace of a model, to be written to a place.
    pub fn new(place: TracePlace, checkpoint: &Checkpoint) -> Self {
        let record_bytes = checkpoint.expert_layout().pieces().map(|piece| piece.bytes).sum();
        let shape = Shape::new(checkpoint.geometry(), record_bytes);
        let (assembly, writer) = (Assembly::new(shape), TraceWriter::new(place, shape));
        TraceFile(Arc::new(Mutex::new(Writing { assembly, writer, failed: None })))
    }

    /// Says what went wrong, if something did.
    ///
    /// # Errors
    /// What ended the trace early.
    pub fn end(&self) -> Result<()> {
        let mut writing = self.writing();
        writing.failed.take().map_or(Ok(()), Err).context("`--trace-experts`")
    }

    fn writing(&self) -> MutexGuard<'_, Writing> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Trace for TraceFile {
    fn begin(&mut self, pass: TracedPass) {
        self.writing().assembly.begin(pass.form == Form::Generated, pass.first, pass.rows);
    }

    fn layer(&mut self, layer: u32, choices: &[u32], margins: &[f32]) {
        let mut writing = self.writing();
        let tokens = writing.assembly.layer(layer, choices, margins);
        if tokens.is_empty() || writing.failed.is_some() {
            return;
        }
        let written = tokens.iter().try_for_each(|token| writing.writer.push(token));
        writing.failed = written.and_then(|()| writing.writer.flush()).err();
    }

    fn forecast(&mut self, layer: u32, choices: &[u32], margins: &[f32]) {
        self.writing().assembly.forecast(layer, choices, margins);
    }
}
