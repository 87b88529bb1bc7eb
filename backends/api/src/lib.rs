//! Owns: what the engine may ask of a device — memory, a pool of expert slots, and a closed set of operations
//! (engine.md sections 2.1 and 4).
//! Refuses: files, threads of a reader, policies; a backend never hears of them.
//! Invariants: an operation's result for a row never depends on the rows beside it (engine.md 3.7), and work
//! submitted earlier is finished, as far as anyone can see, before work submitted later.

pub mod ahead;
pub mod arithmetic;
pub mod backend;
pub mod buffer;
pub mod error;
pub mod facts;
pub mod format;
pub mod op;
pub mod pool;
pub mod recorder;

pub use ahead::{Encoded, Wanted};
pub use arithmetic::{Arithmetic, Form, Rows};
pub use backend::{Backend, Readback, Steps, Submission};
pub use buffer::{Buffer, Memory};
pub use error::{Error, Result};
pub use facts::{Counters, DeviceFacts, DeviceKind, KernelTime};
pub use format::{Format, Matrix, Part, RecordLayout, Scalar, Span};
pub use op::{Linear, NONE, Op};
pub use pool::{Pool, PoolMemory, SlotWriter};
pub use recorder::{Recorder, Scope, Site, Stage, Work};
