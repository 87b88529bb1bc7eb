//! Owns: the way from an operation to the module that encodes it, and the list of all kernels.
//! Refuses: order; the backend walks the recorder.
//! Invariants: a family of operations is one file here, with kernels of the same names in `wgsl/`.

mod copy;
mod embed;
mod experts;
mod gdn;
mod head;
mod hyper;
pub(crate) mod linear;
mod moe;
mod mtp;
mod ple;
mod qsa;
mod top;

use ss_backend::{Op, Result};

use crate::encoding::Encoding;
use crate::registry::Kernel;

/// Every kernel, a family after the other.
pub(crate) const KERNELS: &[&[&Kernel]] = &[
    linear::KERNELS,
    embed::KERNELS,
    hyper::KERNELS,
    experts::KERNELS,
    moe::KERNELS,
    mtp::KERNELS,
    copy::KERNELS,
    gdn::KERNELS,
    ple::KERNELS,
    qsa::KERNELS,
    top::KERNELS,
];

/// Checks an operation and records its dispatches.
///
/// # Errors
/// [`Error::Refused`](ss_backend::Error::Refused) when its sizes or buffers do not fit together,
/// [`Error::Unavailable`](ss_backend::Error::Unavailable) when there is no kernel for it.
pub(crate) fn encode(enc: &mut Encoding<'_>, op: &Op) -> Result<()> {
    match op {
        Op::Embed(op) => embed::embed(enc, op),
        Op::PleProject(op) => ple::project(enc, op),
        Op::PleMix(op) => ple::mix(enc, op),
        Op::HcRead(op) => hyper::read(enc, op),
        Op::ProjectWrite(op) => hyper::project_write(enc, op),
        Op::GdnProject(op) => gdn::project(enc, op),
        Op::GdnMix(op) => gdn::mix(enc, op),
        Op::GdnReplay(op) => gdn::replay(enc, op),
        Op::Window(op) => copy::window(enc, op),
        Op::QsaProject(op) => qsa::project(enc, op),
        Op::QsaAppend(op) => qsa::append(enc, op),
        Op::QsaSelect(op) => qsa::select(enc, op),
        Op::QsaAttend(op) => qsa::attend(enc, op),
        Op::Route(op) => moe::route(enc, op),
        Op::ExpertsIn(op) => experts::gate_up(enc, op),
        Op::ExpertsOut(op) => experts::down(enc, op),
        Op::Combine(op) => moe::combine(enc, op),
        Op::MtpFuse(op) => mtp::fuse(enc, op),
        Op::Head(op) => head::head(enc, op),
        Op::Top(op) => top::top(enc, op),
        Op::Copy(op) => copy::copy(enc, op),
    }
}
