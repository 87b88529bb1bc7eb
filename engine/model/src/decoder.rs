//! Owns: a reply's tokens, one pass each, every pass encoded while the one before it is on the device (engine.md 5.3).
//! Refuses: choosing tokens; and drafts, whose passes are recorded anew.
//! Invariants: what is encoded ahead changes nothing until its token is known: it never moves state, and dropping it
//! leaves the sequence as it was; its numbers are those of [`Model::forward`], bit for bit.

use ss_backend::{Form, Rows, Scope};

use crate::model::{Start, record_head, trunk};
use crate::ride::{Here, Listing, Outcome, Stretch, to_words};
use crate::state::State;
use crate::trace::TracedPass;
use crate::workspace::Area;
use crate::{Cancel, Likeliest, Model, Result};

/// Runs the passes of generated tokens over one sequence.
pub struct Decoder<'m> {
    model: &'m mut Model,
    state: &'m mut State,
    next: Option<Ready>,
}

/// A pass that waits for its token.
struct Ready {
    listing: Listing,
    /// Its first part.
    stretch: Stretch,
}

/// One generated row.
const ROW: Rows = Rows { count: 1, form: Form::Generated };

impl Model {
    /// Takes a sequence for a reply.
    ///
    /// # Errors
    /// When the state is torn.
    pub fn decoder<'m>(&'m mut self, state: &'m mut State) -> Result<Decoder<'m>> {
        state.check_whole()?;
        Ok(Decoder { model: self, state, next: None })
    }
}

impl Decoder<'_> {
    /// The sequence as far as it has come.
    pub fn state(&self) -> &State {
        self.state
    }

    /// Extends the sequence by `id` and gives the likeliest ids behind it, by the rules of [`Model::begin_reply`] and the mask
    /// set last.
    ///
    /// # Errors
    /// As [`Model::forward`].
    pub fn step(&mut self, id: u32, cancel: &Cancel) -> Result<Likeliest> {
        self.state.check_whole()?;
        self.model.check_ids(self.state, &[id])?;
        cancel.check()?;
        // A pass that is recorded now may take shared state over.
        self.state.torn = true;
        let ready = match self.next.take() {
            Some(ready) => ready,
            None => self.record(cancel)?,
        };
        let first = self.state.timeline.tokens;
        let positions = self.state.timeline.text(ROW.count);
        self.state.timeline.extend(&positions, self.model.shapes.qsa.block);
        self.model.upload_rows(&[id], &positions, &self.state.timeline, first)?;
        self.model.tracer.begin(TracedPass { form: ROW.form, first, rows: ROW.count });
        self.model.chooser.feed(self.model.backend.as_ref(), &[id])?;
        let likeliest = self.ride(ready, id, cancel)?;
        self.state.remember(&[id], self.model.geometry().ngram.order);
        self.state.torn = false;
        self.model.show();
        Ok(likeliest)
    }

    /// See [`Model::set_mask`].
    ///
    /// # Errors
    /// When the device is lost.
    pub fn set_mask(&mut self, mask: Option<&[u32]>) -> Result<()> {
        self.model.set_mask(mask)
    }

    /// See [`Model::adjusted_row`]; the row is the last step's.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn adjusted_row(&mut self) -> Result<Vec<f32>> {
        self.model.adjusted_row(0)
    }

    /// See [`Model::raw_row`]; the row is the last step's.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn raw_row(&self) -> Result<Vec<f32>> {
        self.model.raw_row(0)
    }

    /// Takes a pass through the device, and encodes the next one while the last of it runs.
    fn ride(&mut self, ready: Ready, id: u32, cancel: &Cancel) -> Result<Likeliest> {
        let Ready { listing, stretch: mut now } = ready;
        let ends = [self.model.chooser.wanted(ROW.count)];
        self.model.bring_rows(&self.state.context, id, &mut now, cancel)?;
        loop {
            cancel.check()?;
            self.model.rider(ROW, cancel).launch(&mut now)?;
            let ahead = match now.last {
                true => {
                    self.look_ahead(cancel)?;
                    None
                }
                false => Some(self.model.rider(ROW, cancel).stretch(&listing, now.until, &ends)?),
            };
            let mut rider = self.model.rider(ROW, cancel);
            match rider.settle(&listing, now)? {
                Outcome::Over(bytes) => return self.model.likeliest(&to_words(&bytes)),
                Outcome::At(here) => now = rider.next(&listing, here, ahead, &ends)?,
            }
        }
    }

    /// Encodes the next pass, if nothing must be copied for it: then it can be dropped again.
    fn look_ahead(&mut self, cancel: &Cancel) -> Result<()> {
        let window = self.model.geometry().max_positions;
        if self.next.is_none() && self.state.timeline.tokens < window && self.state.takes_row_in_place() {
            self.next = Some(self.record(cancel)?);
        }
        Ok(())
    }

    /// Records the pass of the next token and encodes its first part.
    fn record(&mut self, cancel: &Cancel) -> Result<Ready> {
        let checkpoint = self.model.checkpoint.clone();
        let (mut run, weights, chooser) = self.model.run(Start {
            geometry: checkpoint.geometry(),
            rows: ROW,
            first: self.state.timeline.tokens,
            streams: Area::Streams,
            admits: false,
            dry: false,
            cancel,
        });
        trunk(&mut run, weights, self.state, None)?;
        record_head(&mut run, (&weights.mixer, Scope::Whole), &weights.head, 0, ROW.count);
        run.choose(chooser, ROW);
        let listing = run.take_listing();
        let ends = [self.model.chooser.wanted(ROW.count)];
        let stretch = self.model.rider(ROW, cancel).stretch(&listing, Here::default(), &ends)?;
        Ok(Ready { listing, stretch })
    }
}

impl Model {
    /// Uploads a token's n-gram rows; when some must be read, what comes before them runs meanwhile.
    fn bring_rows(&mut self, context: &[u32], id: u32, stretch: &mut Stretch, cancel: &Cancel) -> Result<()> {
        let rows = self.ngram_rows(context, &[id]);
        if self.store.ngrams.iter().zip(&rows).any(|(table, rows)| !table.holds(rows)) && stretch.has_cut() {
            self.rider(ROW, cancel).advance(stretch)?;
        }
        self.upload_ngram_rows(&rows, ROW.count)
    }
}
