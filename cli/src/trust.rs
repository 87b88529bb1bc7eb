//! Owns: the quick self-test of an adapter at its first start, after which its answers are trusted (engine.md 3.6).
//! Refuses: a device that computes wrongly, in a sentence that names operation, adapter and driver.
//! Invariants: a verdict is kept for adapter, driver and version; a device that cannot be tested gets none.

use anyhow::Result;
use ss_backend::Backend;
use ss_wgpu::selftest::{self, Plan, Row};

use crate::progress::Progress;
use crate::terminal;
use crate::verdicts::{Tested, Verdict, Verdicts, Way};

/// A device that failed its self-test.
#[derive(Debug, thiserror::Error)]
#[error(
    "the adapter `{adapter}` (driver {driver}) computes wrongly: {failure}; `ss selftest` tells all that fails, and \
     `--backend reference` does without it"
)]
pub struct Broken {
    adapter: String,
    driver: String,
    failure: String,
}

/// Trusts a device that has passed its self-test, or passes it now, computing in one way.
///
/// # Errors
/// [`Broken`] where it fails or failed before; the device's own error where it cannot go on.
pub fn check(device: &dyn Backend, way: Way, twin: &dyn Backend, verdicts: &mut Verdicts) -> Result<()> {
    let tested = Tested::of(device.facts(), way);
    let known = verdicts.of(&tested).cloned();
    let verdict = match known {
        Some(verdict) => verdict,
        None => {
            let plan = Plan { quick: true, operation: None };
            let mut bar = Progress::testing();
            let rows = selftest::run(&plan, device, twin, &mut |done, total| bar.update(done as u64, total as u64))?;
            drop(bar);
            let verdict = Verdict { tested, whole: false, failure: failure(&rows) };
            keep(verdicts, verdict.clone());
            verdict
        }
    };
    match verdict.failure {
        None => Ok(()),
        Some(failure) => Err(Broken { adapter: verdict.tested.adapter, driver: verdict.tested.driver, failure }.into()),
    }
}

/// Keeps a verdict; a place that cannot be written only means another test next time.
pub fn keep(verdicts: &mut Verdicts, verdict: Verdict) {
    if let Err(error) = verdicts.keep(verdict) {
        terminal::note(format_args!("note: the result of the self-test cannot be kept ({error})"));
    }
}

/// The first failure of a table.
pub fn failure(rows: &[Row]) -> Option<String> {
    rows.iter().find_map(|row| row.failures.first().map(|failure| format!("{} with {failure}", row.operation)))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    use ss_backend::{
        Buffer, Counters, DeviceFacts, Error, Pool, Readback, RecordLayout, Result, SlotWriter, Submission, Work,
    };
    use ss_reference::{Options, Reference};

    use super::*;
    use crate::exit::Exit;

    /// What is wrong with a device.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Fault {
        /// Nothing.
        None,
        /// Every result is a little too large.
        Large,
        /// Results are no numbers.
        NotNumbers,
        /// Every seventh result differs in its last bit.
        Unsteady,
        /// It went away.
        Lost,
    }

    /// The reference backend under the name of an adapter, with a fault.
    struct Card {
        inner: Reference,
        facts: DeviceFacts,
        fault: Fault,
        reads: AtomicU32,
    }

    impl Card {
        fn new(fault: Fault) -> Self {
            let inner = reference();
            let facts = DeviceFacts { device: "Card".into(), driver: "9.1".into(), ..inner.facts().clone() };
            Card { inner, facts, fault, reads: AtomicU32::new(0) }
        }

        fn spoil(&self, bytes: &mut [u8]) {
            let turn = self.reads.fetch_add(1, Relaxed).is_multiple_of(7);
            let Some(first) = bytes.first_chunk_mut::<4>() else { return };
            let number = f32::from_le_bytes(*first);
            let spoilt = match self.fault {
                Fault::Large => number * 1.01 + 0.01,
                Fault::NotNumbers => f32::NAN,
                Fault::Unsteady if turn => f32::from_bits(number.to_bits() ^ 1),
                Fault::None | Fault::Unsteady | Fault::Lost => number,
            };
            *first = spoilt.to_le_bytes();
        }
    }

    fn reference() -> Reference {
        Reference::new(Options { threads: 1, ..Options::default() }).unwrap()
    }

    impl Backend for Card {
        fn facts(&self) -> &DeviceFacts {
            &self.facts
        }

        fn counters(&self) -> Counters {
            self.inner.counters()
        }

        fn alloc(&self, label: &str, bytes: u64) -> Result<Buffer> {
            self.inner.alloc(label, bytes)
        }

        fn upload(&self, target: &Buffer, offset: u64, bytes: &[u8]) -> Result<()> {
            self.inner.upload(target, offset, bytes)
        }

        fn read_all(&self, parts: &mut [Readback<'_>]) -> Result<()> {
            self.inner.read_all(parts)?;
            parts.iter_mut().for_each(|part| self.spoil(part.into));
            Ok(())
        }

        fn alloc_pool(&self, layout: &RecordLayout, slots: u32) -> Result<Pool> {
            self.inner.alloc_pool(layout, slots)
        }

        fn open_slot(&self, pool: &Pool, slot: u32) -> Result<Box<dyn SlotWriter>> {
            self.inner.open_slot(pool, slot)
        }

        fn submit(&self, work: Work<'_>) -> Result<Submission> {
            match self.fault {
                Fault::Lost => Err(Error::Lost { device: "Card".into(), reason: "it fell off the bus".into() }),
                _ => self.inner.submit(work),
            }
        }

        fn wait(&self, submission: Submission) -> Result<()> {
            self.inner.wait(submission)
        }
    }

    #[test]
    fn a_device_that_computes_wrongly_is_refused_and_stays_refused() {
        for fault in [Fault::Large, Fault::NotNumbers, Fault::Unsteady] {
            let mut verdicts = Verdicts::forgetful();
            let error = check(&Card::new(fault), Way::default(), &reference(), &mut verdicts).unwrap_err();
            assert_eq!(Exit::of(&error), Exit::Device, "{fault:?}");
            let text = error.to_string();
            for part in ["`Card` (driver 9.1) computes wrongly: HcRead with ", "`ss selftest`", "`--backend reference`"]
            {
                assert!(text.contains(part), "{fault:?}: {text}");
            }
            // It is not tried again: this one would pass.
            let again = check(&Card::new(Fault::None), Way::default(), &reference(), &mut verdicts).unwrap_err();
            assert_eq!(again.to_string(), text);
        }
    }

    #[test]
    fn a_device_that_passes_is_tested_once() {
        let mut verdicts = Verdicts::forgetful();
        let first = Card::new(Fault::None);
        check(&first, Way::default(), &reference(), &mut verdicts).unwrap();
        assert!(first.counters().submissions > 0);
        let second = Card::new(Fault::NotNumbers);
        check(&second, Way::default(), &reference(), &mut verdicts).unwrap();
        assert_eq!(second.counters().submissions, 0, "its verdict is known");
    }

    #[test]
    fn a_device_that_cannot_be_tested_gets_no_verdict() {
        let mut verdicts = Verdicts::forgetful();
        let card = Card::new(Fault::Lost);
        let error = check(&card, Way::default(), &reference(), &mut verdicts).unwrap_err();
        assert!(error.to_string().contains("it fell off the bus"), "{error}");
        assert_eq!(verdicts.of(&Tested::of(card.facts(), Way::default())), None);
    }
}
