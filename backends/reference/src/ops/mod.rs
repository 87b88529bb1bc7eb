//! Owns: the way from an operation to the code that runs it.
//! Refuses: order and timing; the backend walks the list.
//! Invariants: a family of operations is one file, which opens with the maths and the row rule.

mod attend;
mod conv;
mod copy;
mod embed;
mod experts;
mod gdn;
mod head;
mod hyper;
mod moe;
mod mtp;
mod ple;
mod qsa;
mod recurrence;
mod select;
mod top;

use ss_backend::{Op, Result};

use crate::step::Step;

/// What an operation says of those after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// They run.
    GoOn,
    /// They wait for experts that have no slot (engine.md 5.3).
    Halt,
}

/// Runs an operation.
///
/// # Errors
/// [`Error::Refused`](ss_backend::Error::Refused) when its sizes or buffers do not fit together.
pub fn run(step: &Step<'_>, op: &Op) -> Result<Then> {
    match op {
        Op::Embed(op) => embed::embed(step, op)?,
        Op::PleProject(op) => ple::project(step, op)?,
        Op::PleMix(op) => ple::mix(step, op)?,
        Op::HcRead(op) => hyper::read(step, op)?,
        Op::ProjectWrite(op) => hyper::project_write(step, op)?,
        Op::GdnProject(op) => gdn::project(step, op)?,
        Op::GdnMix(op) => gdn::mix(step, op)?,
        Op::GdnReplay(op) => gdn::replay(step, op)?,
        Op::Window(op) => copy::window(step, op)?,
        Op::QsaProject(op) => qsa::project(step, op)?,
        Op::QsaAppend(op) => qsa::append(step, op)?,
        Op::QsaSelect(op) => select::select(step, op)?,
        Op::QsaAttend(op) => attend::attend(step, op)?,
        Op::Route(op) => return moe::route(step, op),
        Op::ExpertsIn(op) => experts::gate_up(step, op)?,
        Op::ExpertsOut(op) => experts::down(step, op)?,
        Op::Combine(op) => moe::combine(step, op)?,
        Op::MtpFuse(op) => mtp::fuse(step, op)?,
        Op::Head(op) => head::head(step, op)?,
        Op::Top(op) => top::top(step, op)?,
        Op::Copy(op) => copy::copy(step, op)?,
    }
    Ok(Then::GoOn)
}
