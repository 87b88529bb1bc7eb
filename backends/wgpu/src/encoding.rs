//! Owns: the way from an operation to dispatches: views of buffers, checked weights, one call a kernel.
//! Refuses: buffers of another backend, buffers that are too small or larger than a kernel can bind, weights outside the
//! envelope, a buffer bound as input and output of one kernel.
//! Invariants: an operation that passes its checks is accepted by the device; errors name the operation, its place in
//! the model and the field.

use std::sync::Arc;

use ss_backend::{Arithmetic, Buffer, Error, Format, Linear, Matrix, Memory, Part, Result, Rows, Site};

#[cfg(all(test, feature = "msl"))]
use crate::backend::MadeOf;
use crate::backend::{Decision, Dispatch, Shared, Step};
use crate::bindings::Access;
use crate::memory::Stored;
use crate::pool::Chunks;
use crate::registry::{Inputs, Kernel, Key, Place, PoolBinding, Rest, WeightKey};
use crate::tuning::{self, GemmTile};

/// Bytes of a number or an id.
pub(crate) const WORD_BYTES: u64 = 4;

/// Bytes that kernels load of codes at once.
pub(crate) const QUAD_BYTES: u64 = 16;

/// Dispatches of a submission in which one decides about others: more than ten tokens' worth.
pub(crate) const MOST_DECIDED: usize = 1 << 14;

const GRIDS_BYTES: u64 = MOST_DECIDED as u64 * GRID_BYTES;

/// Bytes of the workgroup counts of one dispatch.
pub(crate) const GRID_BYTES: u64 = size_of::<[u32; 3]>() as u64;

/// An operation while it becomes dispatches.
pub(crate) struct Encoding<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) arithmetic: Arithmetic,
    pub(crate) site: Site,
    /// Name of the operation, for errors.
    pub(crate) op: &'static str,
    pub(crate) steps: &'a mut Vec<Step>,
    /// Where kernels are put down instead of being recorded, if nothing is to run.
    pub(crate) wanted: Option<&'a mut Vec<(&'static Kernel, Key)>>,
}

/// A range of a buffer that a kernel sees.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct View {
    pub(crate) buffer: wgpu::Buffer,
    pub(crate) offset: u64,
    pub(crate) bytes: u64,
}

/// A weight that has passed its checks.
#[derive(Clone, Debug)]
pub(crate) struct Weight {
    pub(crate) matrix: Matrix,
    /// Codes, then scales and biases of an affine weight; empty where it lies in slots.
    pieces: Vec<View>,
    /// Decode form: outputs of a lane and the rows between them, where the kernel gives them.
    outputs: Option<(u32, u32)>,
    /// Decode form: the spread, where the weight alone does not give it.
    spread: Option<tuning::Gemv>,
    /// Decode form: columns that are multiplied at once, where the kernel splits them.
    part: Option<u32>,
    /// Prompt form: what is multiplied.
    inputs: Inputs,
    /// Prompt form: rows and outputs of a workgroup.
    pub(crate) tile: GemmTile,
    /// Where it lies in an expert record, if it is a projection of one.
    place: Option<Place>,
    /// Whether it is two of one shape, the pieces of the second behind those of the first.
    halves: bool,
}

/// Some rows of a weight, in pieces that a kernel can bind.
pub(crate) struct RowRange {
    /// First row.
    pub(crate) first: u32,
    /// How many.
    pub(crate) rows: u32,
    /// The weight, its pieces cut to these rows.
    pub(crate) weight: Weight,
}

/// A kernel with everything it takes.
pub(crate) struct Launch<'a> {
    pub(crate) kernel: &'static Kernel,
    /// Values of its override constants, those of its weights left out.
    pub(crate) constants: &'a [(&'static str, u32)],
    /// Its bindings, in order, those of its weights left out.
    pub(crate) views: &'a [&'a View],
    /// Its weights, in order.
    pub(crate) weights: &'a [&'a Weight],
    /// At most [`IMMEDIATE_BYTES`](crate::device::IMMEDIATE_BYTES) of them.
    pub(crate) immediates: &'a [u32],
    /// Workgroups.
    pub(crate) grid: [u32; 3],
}

#[cfg(all(test, feature = "msl"))]
impl Launch<'_> {
    /// What its dispatch over chunk `bound`, or over all of them, is made of.
    fn made_of(&self, key: &Key, pool: Option<&Chunks>, bound: usize) -> MadeOf {
        let views = self.views.iter().copied().chain(self.weights.iter().flat_map(|weight| &weight.pieces));
        let mut chunks = pool.map(Chunks::chunks).unwrap_or_default();
        if key.pool == PoolBinding::Chunk {
            chunks = vec![chunks.swap_remove(bound)];
        }
        MadeOf { kernel: self.kernel, key: key.clone(), views: views.cloned().collect(), chunks }
    }
}

/// Product of dimensions; the largest number where it overflows, which no buffer holds.
pub(crate) fn volume(dims: &[u32]) -> u64 {
    dims.iter().fold(1, |product: u64, &dim| product.saturating_mul(u64::from(dim)))
}

impl Encoding<'_> {
    /// An error that names the operation and its place.
    pub(crate) fn refuse(&self, why: impl std::fmt::Display) -> Error {
        Error::Refused(format!("{} at {}: {why}", self.op, self.site))
    }

    /// The sentence for what has no kernel.
    pub(crate) fn unavailable(&self, what: impl std::fmt::Display) -> Error {
        let (op, site) = (self.op, self.site);
        Error::Unavailable(format!(
            "the wgpu backend has no kernel for {what} ({op} at {site}); use `--backend reference`"
        ))
    }

    /// Refuses a shape with a zero in it.
    pub(crate) fn nonzero(&self, dims: &[(&str, u32)]) -> Result<()> {
        match dims.iter().find(|(_, dim)| *dim == 0) {
            Some((name, _)) => Err(self.refuse(format_args!("`{name}` is 0, expected at least 1"))),
            None => Ok(()),
        }
    }

    /// What a product over these rows multiplies, where it may be rounded (engine.md 3.5).
    pub(crate) fn inputs(&self, rows: Rows) -> Inputs {
        if self.arithmetic.rounds_inputs(rows.form) { self.shared.rounded } else { Inputs::F32 }
    }

    /// The first `numbers` numbers or ids, 4 bytes each.
    pub(crate) fn view(&self, buffer: &Buffer, field: &str, numbers: u64) -> Result<View> {
        self.bytes(buffer, field, numbers.saturating_mul(WORD_BYTES))
    }

    /// The first `bytes` bytes, rounded up to a whole word.
    pub(crate) fn bytes(&self, buffer: &Buffer, field: &str, bytes: u64) -> Result<View> {
        let view = self.unbound(buffer, field, bytes)?;
        self.bindable(&view, field)?;
        Ok(view)
    }

    fn bindable(&self, view: &View, field: &str) -> Result<()> {
        let device = &self.shared.device;
        let (bytes, most) = (view.bytes, device.limits.max_storage_buffer_binding_size);
        if bytes <= most {
            return Ok(());
        }
        Err(Error::Unavailable(format!(
            "`{field}` of {} at {} has {bytes} bytes, more than the {most} that a kernel can bind on `{}`; use a \
             smaller `--prefill-pass`, or `--backend reference`",
            self.op, self.site, device.facts.device
        )))
    }

    /// Checked but for the binding limit.
    fn unbound(&self, buffer: &Buffer, field: &str, bytes: u64) -> Result<View> {
        let stored = Stored::of(buffer)?;
        if bytes > stored.bytes() {
            let have = stored.bytes();
            return Err(self.refuse(format_args!("`{field}` has {have} bytes, {bytes} are needed")));
        }
        // Nothing cannot be bound; a buffer has whole quads.
        let bytes = bytes.max(1).next_multiple_of(QUAD_BYTES);
        Ok(View { buffer: stored.block.raw.clone(), offset: 0, bytes })
    }

    /// A weight of `rows` outputs from `cols` inputs, small enough to be bound whole.
    pub(crate) fn weight(&self, linear: &Linear, field: &str, rows: u32, cols: u32) -> Result<Weight> {
        let weight = self.large_weight(linear, field, rows, cols)?;
        weight.pieces.iter().try_for_each(|piece| self.bindable(piece, field))?;
        Ok(weight)
    }

    /// A weight that may have to be bound in [`row_ranges`](Self::row_ranges).
    pub(crate) fn large_weight(&self, linear: &Linear, field: &str, rows: u32, cols: u32) -> Result<Weight> {
        let matrix = linear.matrix;
        self.known(matrix, field, rows, cols)?;
        let mut pieces = vec![self.unbound(&linear.codes, field, matrix.code_bytes())?];
        if matrix.format.is_affine() {
            for side in [&linear.scales, &linear.biases] {
                let side =
                    side.as_ref().ok_or_else(|| self.refuse(format_args!("`{field}` lacks scales or biases")))?;
                pieces.push(self.unbound(side, field, matrix.scale_bytes())?);
            }
        }
        Ok(self.whole(matrix, pieces))
    }

    /// A projection of the experts in a pool, of `rows` outputs from `cols` inputs.
    pub(crate) fn slot_weight(&self, part: &Part, field: &str, rows: u32, cols: u32) -> Result<Weight> {
        let matrix = part.matrix;
        self.known(matrix, field, rows, cols)?;
        let units = |offset: u64, unit: u64| {
            let whole = if offset.is_multiple_of(unit) { u32::try_from(offset / unit).ok() } else { None };
            whole.ok_or_else(|| self.refuse(format_args!("`{field}` lies at byte {offset} of an expert record")))
        };
        let place = Place {
            codes: units(part.codes.offset, QUAD_BYTES)?,
            scales: units(part.scales.offset, WORD_BYTES)?,
            biases: units(part.biases.offset, WORD_BYTES)?,
            rest: None,
        };
        let spread = Some(tuning::gemv_in_slot(matrix, tuning::EXPERT_OUTPUTS.value));
        Ok(Weight { spread, place: Some(place), ..self.whole(matrix, Vec::new()) })
    }

    /// A weight in these pieces, spread as it alone says.
    fn whole(&self, matrix: Matrix, pieces: Vec<View>) -> Weight {
        let tile = self.shared.tile;
        Weight {
            matrix,
            pieces,
            outputs: None,
            spread: None,
            part: None,
            inputs: Inputs::F32,
            tile,
            place: None,
            halves: false,
        }
    }

    /// Refuses a weight of another shape, and one outside the envelope.
    fn known(&self, matrix: Matrix, field: &str, rows: u32, cols: u32) -> Result<()> {
        if (matrix.rows, matrix.cols) != (rows, cols) {
            let have = format!("[{}, {}]", matrix.rows, matrix.cols);
            return Err(self.refuse(format_args!("`{field}` has shape {have}, expected [{rows}, {cols}]")));
        }
        if !supported(matrix) {
            return Err(self.refuse(format_args!("`{field}` has a format outside the envelope: {:?}", matrix.format)));
        }
        Ok(())
    }

    /// The weight in ranges of rows that a kernel can bind: one, unless the device's limit is small.
    pub(crate) fn row_ranges(&self, weight: &Weight, field: &str) -> Result<Vec<RowRange>> {
        let limits = &self.shared.device.limits;
        let most = limits.max_storage_buffer_binding_size;
        let matrix = weight.matrix;
        if weight.pieces.iter().all(|piece| piece.bytes <= most) {
            return Ok(vec![RowRange { first: 0, rows: matrix.rows, weight: weight.clone() }]);
        }
        // Every piece of a range begins where the device takes an offset, if its first row is a multiple of this.
        let align = u64::from(limits.min_storage_buffer_offset_alignment.max(1));
        let fits = most / matrix.code_row_bytes().max(matrix.scale_row_bytes()).max(1) / align * align;
        let step = u32::try_from(fits).unwrap_or(u32::MAX);
        if step == 0 {
            return Err(self.refuse(format_args!("a row of `{field}` is larger than a binding")));
        }
        let range = |first: u32| {
            let rows = step.min(matrix.rows - first);
            RowRange { first, rows, weight: weight.cut(first, rows) }
        };
        Ok((0..matrix.rows).step_by(step as usize).map(range).collect())
    }

    /// Memory for `bytes` bytes that only this operation needs. There is one such place: two calls within an operation
    /// give the same, or the smaller of two that both are dead.
    pub(crate) fn scratch(&self, bytes: u64) -> Result<View> {
        let buffer = self.shared.scratch.at_least(&self.shared.device, bytes)?;
        let view = View { buffer, offset: 0, bytes: bytes.max(1).next_multiple_of(QUAD_BYTES) };
        self.bindable(&view, "scratch")?;
        Ok(view)
    }

    /// `count` counters that are zero, and that the operation leaves zero.
    pub(crate) fn tickets(&self, count: u32) -> Result<View> {
        let bytes = WORD_BYTES.saturating_mul(u64::from(count.max(1)));
        let buffer = self.shared.tickets.at_least(&self.shared.device, bytes)?;
        Ok(View { buffer, offset: 0, bytes })
    }

    /// Workgroups of each dispatch of the submission, where one of them decides about those after it.
    pub(crate) fn grids(&self) -> Result<View> {
        let buffer = self.shared.grids.at_least(&self.shared.device, GRIDS_BYTES)?;
        Ok(View { buffer, offset: 0, bytes: GRIDS_BYTES })
    }

    /// Records a kernel.
    pub(crate) fn launch(&mut self, launch: &Launch<'_>) -> Result<()> {
        self.launch_over(None, launch)
    }

    /// Records a kernel that may take the workgroups of all dispatches after it. It finds the range of those behind its
    /// immediates.
    pub(crate) fn launch_deciding(&mut self, launch: &Launch<'_>) -> Result<()> {
        let before = self.steps.len();
        self.launch(launch)?;
        if let Some(Step::Dispatch(dispatch)) = self.steps.get_mut(before) {
            dispatch.decides = Some(Decision { range_at: dispatch.immediates.len() });
            dispatch.immediates.extend([0, 0]);
        }
        Ok(())
    }

    /// Records a kernel that sees the slot pool: once where all chunks are bound at once, else once a chunk, the
    /// chunk's number put after the other immediates.
    pub(crate) fn launch_over(&mut self, pool: Option<&Chunks>, launch: &Launch<'_>) -> Result<()> {
        if launch.grid.contains(&0) {
            return Ok(());
        }
        let device = &self.shared.device;
        let most = device.limits.max_compute_workgroups_per_dimension;
        if let Some(groups) = launch.grid.iter().find(|&&groups| groups > most) {
            return Err(self.refuse(format_args!("{groups} workgroups in a direction that takes {most}")));
        }
        let key = Key {
            kernel: launch.kernel.name(),
            weights: launch.weights.iter().map(|weight| weight.key()).collect(),
            pool: pool.map_or(PoolBinding::None, |pool| pool.binding),
            constants: launch.constants.to_vec(),
        };
        if let Some(wanted) = &mut self.wanted {
            wanted.push((launch.kernel, key));
            return Ok(());
        }
        #[cfg(all(test, feature = "msl"))]
        let made_of = |bound| launch.made_of(&key, pool, bound);
        let pipeline = self.shared.registry.pipeline(device, launch.kernel, key.clone())?;
        let views: Vec<&View> =
            launch.views.iter().copied().chain(launch.weights.iter().flat_map(|weight| &weight.pieces)).collect();
        self.check_bindings(launch.kernel, &pipeline.bindings, &views)?;
        let arguments = self.shared.groups.group(device, &pipeline, &views);
        let groups: &[_] = pool.map_or(&[], |pool| &pool.groups);
        for bound in 0..groups.len().max(1) {
            let mut immediates = launch.immediates.to_vec();
            immediates.extend(pool.map(|_| bound as u32));
            self.steps.push(Step::Dispatch(Dispatch {
                pipeline: Arc::clone(&pipeline),
                arguments: arguments.clone(),
                pool: groups.get(bound).cloned(),
                immediates,
                grid: launch.grid,
                decides: None,
                #[cfg(all(test, feature = "msl"))]
                made_of: made_of(bound),
            }));
        }
        Ok(())
    }

    fn check_bindings(&self, kernel: &Kernel, bindings: &[crate::bindings::Binding], views: &[&View]) -> Result<()> {
        let name = kernel.name();
        if bindings.len() != views.len() {
            let (takes, given) = (bindings.len(), views.len());
            return Err(self.refuse(format_args!("kernel {name} takes {takes} buffers, {given} were given")));
        }
        for (i, binding) in bindings.iter().enumerate().filter(|(_, binding)| binding.access == Access::Write) {
            if let Some(other) = (0..views.len()).find(|&j| j != i && views[j].buffer == views[i].buffer) {
                let (a, b) = (&binding.name, &bindings[other].name);
                return Err(self.refuse(format_args!("one buffer is bound as `{a}`, written, and as `{b}` of {name}")));
            }
        }
        Ok(())
    }
}

/// Whether a format is inside the envelope: 4 or 8 bits, groups of 32 or 64 that fill the rows.
pub(crate) fn supported(matrix: Matrix) -> bool {
    match matrix.format {
        Format::Dense(_) => matrix.rows > 0 && matrix.cols > 0,
        Format::Affine { bits, group, .. } => {
            let known = matches!(bits, 4 | 8) && matches!(group, 32 | 64);
            known && matrix.rows > 0 && matrix.cols > 0 && matrix.cols.is_multiple_of(group)
        }
    }
}

impl Weight {
    /// The same weight, multiplied so in the prompt form.
    pub(crate) fn multiplied(mut self, inputs: Inputs) -> Self {
        self.inputs = inputs;
        if matches!(inputs, Inputs::Units(_)) {
            self.tile = self.tile.with_units(self.place.is_some(), self.matrix.rows);
        }
        self
    }

    /// Two projections of a record read as one of twice the outputs, a lane having an output of each: none unless they
    /// are affine, alike, and the second lies behind the first.
    pub(crate) fn stacked(&self, second: &Weight) -> Option<Weight> {
        let matrix = self.matrix;
        let (place, next) = (self.place?, second.place?);
        let words = matrix.scale_bytes() / WORD_BYTES;
        let whole = matrix.format.is_affine() && matrix.scale_bytes().is_multiple_of(WORD_BYTES);
        if matrix != second.matrix || !whole || !matrix.code_bytes().is_multiple_of(QUAD_BYTES) {
            return None;
        }
        let (codes_at, scales_at) = (u32::try_from(matrix.code_bytes() / QUAD_BYTES).ok()?, u32::try_from(words).ok()?);
        let by = |next: u32, first: u32, size: u32| next.checked_sub(first)?.checked_sub(size);
        let rest = Some(Rest {
            codes_at,
            codes_by: by(next.codes, place.codes, codes_at)?,
            scales_at,
            scales_by: by(next.scales, place.scales, scales_at)?,
            biases_by: by(next.biases, place.biases, scales_at)?,
        });
        let spread = Some(tuning::gemv_of_two(matrix));
        Some(Weight {
            matrix: Matrix { rows: matrix.rows.checked_mul(2)?, ..matrix },
            outputs: Some((2, matrix.rows)),
            spread,
            place: Some(Place { rest, ..place }),
            ..self.clone()
        })
    }

    /// Two weights in buffers of their own read as one of twice the outputs, as [`stacked`](Self::stacked) reads two
    /// projections.
    pub(crate) fn beside(&self, second: &Weight) -> Option<Weight> {
        let matrix = self.matrix;
        let whole = matrix.format.is_affine() && matrix.scale_bytes().is_multiple_of(WORD_BYTES);
        if matrix != second.matrix || !whole || self.place.is_some() {
            return None;
        }
        Some(Weight {
            matrix: Matrix { rows: matrix.rows.checked_mul(2)?, ..matrix },
            pieces: self.pieces.iter().chain(&second.pieces).cloned().collect(),
            outputs: Some((2, matrix.rows)),
            spread: Some(tuning::gemv_of_two(matrix)),
            halves: true,
            ..self.clone()
        })
    }

    /// The same weight, spread as the projections of experts are, with so many outputs of a lane.
    pub(crate) fn spread_as_in_slot(mut self, outputs: u32) -> Self {
        self.spread = Some(tuning::gemv_in_slot(self.matrix, outputs));
        self
    }

    /// The same weight, a lane of `gemv_walk.wgsl` having so many outputs.
    pub(crate) fn walked(mut self, outputs: u32) -> Self {
        self.spread = Some(tuning::gemv_walked(self.matrix, outputs));
        self
    }

    /// The same weight, one of several that are multiplied in a dispatch.
    pub(crate) fn beside_others(mut self) -> Self {
        self.spread = Some(tuning::gemv_beside(self.matrix));
        self
    }

    /// The same weight, a lane of the decode form having `count` outputs, or some such, that are `apart` rows apart.
    pub(crate) fn with_outputs(mut self, count: u32, apart: u32) -> Self {
        self.outputs = Some((count, apart));
        self
    }

    /// The same weight, its columns split every `columns` in the decode form.
    pub(crate) fn with_part(mut self, columns: u32) -> Self {
        self.part = Some(columns);
        self
    }

    /// The same weights, both spread in the same way, so that their outputs meet in one thread.
    pub(crate) fn paired(mut self, mut other: Self) -> (Self, Self) {
        let spread = self.spread().least(other.spread());
        (self.spread, other.spread) = (Some(spread), Some(spread));
        (self, other)
    }

    /// How the decode form spreads it.
    pub(crate) fn spread(&self) -> tuning::Gemv {
        self.key().spread()
    }

    /// Workgroups of the decode form over `outputs` of its outputs.
    pub(crate) fn tiles(&self, outputs: u32) -> u32 {
        outputs.div_ceil(self.spread().tile())
    }

    /// Units of 16 bytes of codes in a row; of 8 numbers in rows of odd length.
    pub(crate) fn units(&self) -> u32 {
        self.matrix.cols.div_ceil(tuning::unit(self.matrix.format))
    }

    fn key(&self) -> WeightKey {
        let &Weight { matrix, outputs, spread, part, inputs, tile, place, halves, .. } = self;
        WeightKey { matrix, outputs, spread, part, inputs, tile, place, halves }
    }

    fn cut(&self, first: u32, rows: u32) -> Weight {
        let row_bytes = [self.matrix.code_row_bytes(), self.matrix.scale_row_bytes(), self.matrix.scale_row_bytes()];
        let piece = |(piece, row): (&View, u64)| View {
            buffer: piece.buffer.clone(),
            offset: piece.offset + u64::from(first) * row,
            bytes: (u64::from(rows) * row).next_multiple_of(WORD_BYTES),
        };
        Weight { pieces: self.pieces.iter().zip(row_bytes).map(piece).collect(), ..self.clone() }
    }
}
