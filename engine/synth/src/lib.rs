//! Owns: writing a checkpoint of any geometry in the real layout with made-up weights, so that the released geometry can
//! be run, at any number of layers, on any machine.
//! Refuses: meaning; such a model says nothing. Consecutive tokens do not share experts more than chance has it, as those
//! of a trained model do.
//! Invariants: the list of tensors is the loader's own; every byte follows from the seed, the tensor's name and the byte's
//! place in it alone, whatever the number of threads; what was left unfinished does not open.

mod error;
mod fill;
mod geometry;
mod plan;
mod random;
mod recipe;
mod skew;
mod space;
mod words;
mod write;

pub use error::{Error, Result};
pub use geometry::Source;
pub use plan::{NgramRows, Order, Plan};
pub use random::Stream;
pub use skew::Skew;
pub use write::{WriteOptions, write};
