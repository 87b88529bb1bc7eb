//! Owns: what an operation sees while it runs: the machine, where in the model it stands, and checked views of buffers.
//! Refuses: buffers of another backend, buffers that are too small, buffers bound twice where one of them is written.
//! Invariants: an operation has all its views, or has refused, before it writes a number.

use std::ops::Range;

use bytemuck::Pod;
use parking_lot::{MappedRwLockReadGuard, MappedRwLockWriteGuard, RwLockReadGuard, RwLockWriteGuard};
use ss_backend::op::Carry;
use ss_backend::{Arithmetic, Buffer, Error, Linear, Matrix, Pool, Result, Rows, Scope, Site};

use crate::memory::HostBuffer;
use crate::pool::HostPool;
use crate::scratch::{Lease, Scratch};
use crate::simd::{Kernel, Tier};
use crate::tap::{Tap, TapData};
use crate::threads::Threads;
use crate::tuning::ROW_TILE;
use crate::weights::{Weight, supported};

/// A view to read.
pub type Read<'a, T> = MappedRwLockReadGuard<'a, [T]>;
/// A view to write.
pub type Write<'a, T> = MappedRwLockWriteGuard<'a, [T]>;

/// What computes.
pub struct Machine {
    /// Threads.
    pub threads: Threads,
    /// How kernels are compiled.
    pub tier: Tier,
    /// Whether inputs of prompt products are rounded to F16 in the fast profile.
    pub f16_inputs: bool,
    /// Working memory.
    pub scratch: Scratch,
    /// Observer, if there is one.
    pub tap: Option<Tap>,
}

/// An operation while it runs.
pub struct Step<'a> {
    /// What computes.
    pub machine: &'a Machine,
    /// Profile.
    pub arithmetic: Arithmetic,
    /// Where in the model it stands.
    pub site: Site,
    /// Name of the operation, for errors.
    pub op: &'static str,
}

/// Product of dimensions; the largest number where it overflows, which no buffer holds.
pub fn volume(dims: &[u32]) -> usize {
    dims.iter().fold(1, |product: usize, &dim| product.saturating_mul(dim as usize))
}

impl<'a> Step<'a> {
    /// An error that names the operation and its place.
    pub fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::Refused(format!("{} at {}: {why}", self.op, self.site))
    }

    /// Refuses a shape with a zero in it.
    ///
    /// # Errors
    /// [`Error::Refused`] naming the dimension.
    pub fn nonzero(&self, dims: &[(&str, u32)]) -> Result<()> {
        match dims.iter().find(|(_, dim)| *dim == 0) {
            Some((name, _)) => Err(self.refuse(format_args!("`{name}` is 0, expected at least 1"))),
            None => Ok(()),
        }
    }

    /// Whether inputs of a product over these rows are rounded to F16 (engine.md 3.5).
    pub fn rounds(&self, rows: Rows) -> bool {
        self.machine.f16_inputs && self.arithmetic.rounds_inputs(rows.form)
    }

    /// The first `len` numbers of a buffer, to read.
    ///
    /// # Errors
    /// [`Error::Refused`] when the buffer is foreign, too small, or bound as an output too.
    pub fn read<'b, T: Pod>(&self, buffer: &'b Buffer, field: &str, len: usize) -> Result<Read<'b, T>> {
        let memory = self.memory::<T>(buffer, field, len)?;
        let words = memory.words.try_read().ok_or_else(|| self.bound_twice(memory, field))?;
        Ok(RwLockReadGuard::map(words, |words| &bytemuck::cast_slice(words)[..len]))
    }

    /// The first `len` numbers of a buffer, to write.
    ///
    /// # Errors
    /// [`Error::Refused`] when the buffer is foreign, too small, or bound to another field too.
    pub fn write<'b, T: Pod>(&self, buffer: &'b Buffer, field: &str, len: usize) -> Result<Write<'b, T>> {
        let memory = self.memory::<T>(buffer, field, len)?;
        let words = memory.words.try_write().ok_or_else(|| self.bound_twice(memory, field))?;
        Ok(RwLockWriteGuard::map(words, |words| &mut bytemuck::cast_slice_mut(words)[..len]))
    }

    /// A state: what was there before, if it lies elsewhere, and the place where it is left.
    ///
    /// # Errors
    /// As [`read`](Self::read) and [`write`](Self::write).
    pub fn carry<'b>(&self, carry: &'b Carry, field: &str, len: usize) -> Result<Carried<'b>> {
        let from = carry.from.as_ref().map(|from| self.read(from, field, len)).transpose()?;
        Ok(Carried { from, state: self.write(&carry.state, field, len)? })
    }

    fn memory<'b, T>(&self, buffer: &'b Buffer, field: &str, len: usize) -> Result<&'b HostBuffer> {
        let Some(memory) = buffer.memory::<HostBuffer>() else {
            return Err(self.refuse(format_args!("`{field}` is a buffer of another backend")));
        };
        let need = (len as u64).saturating_mul(size_of::<T>() as u64);
        if need > buffer.bytes() {
            let (label, have) = (&memory.label, buffer.bytes());
            return Err(self.refuse(format_args!("`{field}` ({label}) has {have} bytes, {need} are needed")));
        }
        Ok(memory)
    }

    fn bound_twice(&self, memory: &HostBuffer, field: &str) -> Error {
        self.refuse(format_args!("`{field}` ({}) is bound as input and output", memory.label))
    }

    /// A weight of `rows` outputs from `cols` inputs.
    ///
    /// # Errors
    /// [`Error::Refused`] when shape, format or pieces are not as expected.
    pub fn weight<'b>(&self, linear: &'b Linear, field: &str, rows: usize, cols: usize) -> Result<HeldWeight<'b>> {
        let matrix = linear.matrix;
        if (matrix.rows as usize, matrix.cols as usize) != (rows, cols) {
            let have = format!("[{}, {}]", matrix.rows, matrix.cols);
            return Err(self.refuse(format_args!("`{field}` has shape {have}, expected [{rows}, {cols}]")));
        }
        if !supported(matrix) {
            return Err(self.refuse(format_args!("`{field}` has a format outside the envelope: {:?}", matrix.format)));
        }
        let size = |bytes: u64| usize::try_from(bytes).unwrap_or(usize::MAX);
        let side = |buffer: &'b Option<Buffer>| match buffer {
            Some(buffer) if matrix.format.is_affine() => {
                self.read(buffer, field, size(matrix.scale_bytes())).map(Option::Some)
            }
            None if matrix.format.is_affine() => Err(self.refuse(format_args!("`{field}` lacks scales or biases"))),
            _ => Ok(None),
        };
        let codes = self.read(&linear.codes, field, size(matrix.code_bytes()))?;
        Ok(HeldWeight { matrix, codes, scales: side(&linear.scales)?, biases: side(&linear.biases)? })
    }

    /// A pool of this backend.
    ///
    /// # Errors
    /// [`Error::Refused`] when it is another's.
    pub fn pool<'b>(&self, pool: &'b Pool) -> Result<&'b HostPool> {
        pool.memory::<HostPool>().ok_or_else(|| self.refuse("`pool` belongs to another backend"))
    }

    /// Working memory for `len` numbers.
    pub fn scratch(&self, len: usize) -> Lease<'a> {
        self.machine.scratch.take(len)
    }

    /// Runs a kernel on this thread.
    pub fn run(&self, kernel: impl Kernel) {
        self.machine.tier.run(kernel);
    }

    /// Runs `f(first, piece)` over pieces of whole units, see [`Threads::split`].
    pub fn split<T: Send>(&self, work: usize, items: &mut [T], unit: usize, f: impl Fn(usize, &mut [T]) + Sync) {
        self.machine.threads.split(work as u64, items, unit, f);
    }

    /// The rows `0..rows` in tiles that fit the caches; all at once where an observer wants to see them whole.
    pub fn tiles(&self, rows: u32) -> impl Iterator<Item = Range<usize>> {
        let rows = rows as usize;
        let size = if self.tapped() { rows.max(1) } else { ROW_TILE };
        (0..rows).step_by(size).map(move |first| first..rows.min(first + size))
    }

    /// Whether somebody listens.
    pub fn tapped(&self) -> bool {
        self.machine.tap.is_some()
    }

    /// Tells the observer, under the name of this step of the model.
    pub fn tap(&self, name: &str, shape: &[usize], data: &[f32]) {
        if let Some(tap) = &self.machine.tap {
            tap(&format!("{}.{name}", self.site), shape, TapData::F32(data));
        }
    }

    /// Tells the observer of ids; [`NONE`](ss_backend::NONE) becomes -1.
    pub fn tap_ids(&self, name: &str, shape: &[usize], data: &[u32]) {
        if let Some(tap) = &self.machine.tap {
            tap(&format!("{}.{name}", self.site), shape, TapData::I32(bytemuck::cast_slice(data)));
        }
    }

    /// Tells the observer, under the name of the layer.
    pub fn tap_layer(&self, name: &str, shape: &[usize], data: &[f32]) {
        if let Some(tap) = &self.machine.tap {
            let scope = match self.site.scope {
                Scope::Layer(layer) => format!("L{layer}.{name}"),
                Scope::Mtp => format!("mtp.{name}"),
                Scope::Whole => name.into(),
            };
            tap(&scope, shape, TapData::F32(data));
        }
    }
}

/// A state while an operation carries it on.
pub struct Carried<'a> {
    /// What was there before, where it lies elsewhere.
    pub from: Option<Read<'a, f32>>,
    /// What was there before, where it does not; afterwards what is left.
    pub state: Write<'a, f32>,
}

impl Carried<'_> {
    /// What was there before.
    pub fn before(&self) -> &[f32] {
        self.from.as_deref().unwrap_or(&self.state)
    }
}

/// The locked pieces of a weight.
pub struct HeldWeight<'a> {
    matrix: Matrix,
    codes: Read<'a, u8>,
    scales: Option<Read<'a, u8>>,
    biases: Option<Read<'a, u8>>,
}

impl HeldWeight<'_> {
    /// The weight.
    pub fn view(&self) -> Weight<'_> {
        Weight::new(self.matrix, &self.codes, bytes(&self.scales), bytes(&self.biases))
    }
}

fn bytes<'a>(side: &'a Option<Read<'_, u8>>) -> &'a [u8] {
    side.as_deref().unwrap_or(&[])
}
