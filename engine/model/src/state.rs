//! Owns: everything that survives between passes for one sequence (architecture.md section 13, engine.md 7.1).
//! Refuses: being used after a pass that failed half way.
//! Invariants: a fork shares memory until one of the two writes; only used rows are ever compared, saved or loaded.

use std::sync::Arc;

use ss_backend::op::{Carry, Copy, QsaCache};
use ss_backend::{Arithmetic, Backend, Buffer, Recorder, Scalar, Scope, Stage};
use ss_checkpoint::{Geometry, LayerKind};

use crate::rope::Position;
use crate::shapes::Shapes;
use crate::{Error, Result};

/// Cache rows are added in blocks of this many, so that a decode step seldom allocates.
const GROWTH_ROWS: u32 = 256;

/// Where a run of tokens stands: how many there are, the next position, and the positions at which blocks begin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timeline {
    /// Tokens so far.
    pub tokens: u32,
    /// Position of the next text token; differs from `tokens` after images.
    pub next: u32,
    /// Position of the first token of every block begun.
    pub starts: Vec<Position>,
}

impl Timeline {
    /// Positions of the next `count` text tokens.
    pub fn text(&self, count: u32) -> Vec<Position> {
        (0..count).map(|i| [self.next + i; 3]).collect()
    }

    /// Takes tokens at these positions in.
    pub fn extend(&mut self, positions: &[Position], block: u32) {
        for position in positions {
            if self.tokens.is_multiple_of(block) {
                self.starts.push(*position);
            }
            self.tokens += 1;
            self.next = self.next.max(position.iter().max().map_or(0, |p| p + 1));
        }
    }
}

/// State of a Gated DeltaNet mixer.
#[derive(Clone)]
pub struct GdnState {
    /// `[kernel - 1, channels]` F32.
    pub window: Arc<Buffer>,
    /// `[value_heads, value_dim, key_dim]` F32.
    pub state: Arc<Buffer>,
}

/// Rows of a sparse attention mixer.
#[derive(Clone)]
pub struct QsaState {
    capacity: u32,
    k: Arc<Buffer>,
    v: Arc<Buffer>,
    raw: Arc<Buffer>,
    pooled: Arc<Buffer>,
}

/// State of one layer's mixer.
#[derive(Clone)]
pub enum MixerState {
    /// Linear attention.
    Gdn(GdnState),
    /// Sparse attention.
    Qsa(QsaState),
}

impl MixerState {
    /// Bytes of device memory.
    fn bytes(&self) -> u64 {
        match self {
            MixerState::Gdn(s) => s.window.bytes() + s.state.bytes(),
            MixerState::Qsa(s) => s.k.bytes() + s.v.bytes() + s.raw.bytes() + s.pooled.bytes(),
        }
    }
}

/// State of the draft head: its own rows, one for each pair of a token and the streams before it.
#[derive(Clone)]
pub struct DraftState {
    /// Its own count, from 0.
    pub timeline: Timeline,
    /// Its rows; always of sparse attention.
    pub mixer: MixerState,
}

/// State of one sequence. Cloning it is a fork.
#[derive(Clone)]
pub struct State {
    pub(crate) shapes: Shapes,
    pub(crate) arithmetic: Arithmetic,
    /// Tokens and positions.
    pub timeline: Timeline,
    /// One for each main layer.
    pub mixers: Vec<MixerState>,
    /// `[window, streams * hidden]` F32, one for each n-gram injection.
    pub ple: Vec<Arc<Buffer>>,
    /// The last ids, as many as an n-gram looks back.
    pub context: Vec<u32>,
    /// The draft head's rows, where the checkpoint has one.
    pub draft: Option<DraftState>,
    pub(crate) torn: bool,
}

/// Bytes of one row in each tensor of a sparse attention cache.
#[derive(Clone, Copy)]
struct RowBytes {
    kv: u64,
    index: u64,
}

fn row_bytes(shapes: &Shapes, arithmetic: Arithmetic) -> RowBytes {
    let scalar = arithmetic.cache_scalar().bytes();
    let q = &shapes.qsa;
    RowBytes { kv: u64::from(q.kv_heads * q.head_dim) * scalar, index: u64::from(q.index_dim) * scalar }
}

impl QsaState {
    fn new(backend: &dyn Backend, shapes: &Shapes, arithmetic: Arithmetic) -> Result<Self> {
        let row = row_bytes(shapes, arithmetic);
        let rows = u64::from(GROWTH_ROWS);
        let alloc = |label, bytes| -> Result<Arc<Buffer>> { Ok(Arc::new(backend.alloc(label, bytes)?)) };
        Ok(QsaState {
            capacity: GROWTH_ROWS,
            k: alloc("k rows", rows * row.kv)?,
            v: alloc("v rows", rows * row.kv)?,
            raw: alloc("indexer rows", rows * row.index)?,
            pooled: alloc("indexer blocks", rows / u64::from(shapes.qsa.block) * row.index)?,
        })
    }

    /// Makes room for `needed` rows that this state alone may write; keeps the first `used`.
    pub(crate) fn reserve(&mut self, room: Room<'_>, rec: &mut Recorder) -> Result<()> {
        let row = row_bytes(room.shapes, room.arithmetic);
        let block = u64::from(room.shapes.qsa.block);
        let grown = if room.needed > self.capacity {
            room.needed.max(self.capacity + self.capacity / 4).next_multiple_of(GROWTH_ROWS)
        } else {
            self.capacity
        };
        // A pass that is only recorded stands behind tokens that nobody read.
        let used = u64::from(room.used.min(self.capacity));
        let (rows, grows) = (u64::from(grown), grown > self.capacity);
        let mut renew = |held: &mut Arc<Buffer>, label, used_bytes: u64, bytes: u64| -> Result<()> {
            if !grows && Arc::get_mut(held).is_some() {
                return Ok(());
            }
            let to = room.backend.alloc(label, bytes)?;
            if used_bytes > 0 {
                rec.copy(Copy {
                    from: (**held).clone(),
                    from_offset: 0,
                    to: to.clone(),
                    to_offset: 0,
                    bytes: used_bytes,
                });
            }
            *held = Arc::new(to);
            Ok(())
        };
        renew(&mut self.k, "k rows", used * row.kv, rows * row.kv)?;
        renew(&mut self.v, "v rows", used * row.kv, rows * row.kv)?;
        renew(&mut self.raw, "indexer rows", used * row.index, rows * row.index)?;
        renew(&mut self.pooled, "indexer blocks", used / block * row.index, rows / block * row.index)?;
        self.capacity = grown;
        Ok(())
    }

    /// The handles that operations take.
    pub(crate) fn cache(&self, scalar: Scalar) -> QsaCache {
        QsaCache {
            scalar,
            k: (*self.k).clone(),
            v: (*self.v).clone(),
            raw: (*self.raw).clone(),
            pooled: (*self.pooled).clone(),
        }
    }
}

/// What [`QsaState::reserve`] makes room for.
#[derive(Clone, Copy)]
pub(crate) struct Room<'a> {
    pub backend: &'a dyn Backend,
    pub shapes: &'a Shapes,
    pub arithmetic: Arithmetic,
    pub used: u32,
    pub needed: u32,
}

/// Takes state over for writing: in place when nobody else holds it, else from the shared copy into a new buffer.
pub(crate) fn carry(backend: &dyn Backend, label: &str, held: &mut Arc<Buffer>) -> Result<Carry> {
    if Arc::get_mut(held).is_some() {
        return Ok(Carry { from: None, state: (**held).clone() });
    }
    let to = backend.alloc(label, held.bytes())?;
    let from = std::mem::replace(held, Arc::new(to.clone()));
    Ok(Carry { from: Some((*from).clone()), state: to })
}

/// One tensor of a state, read back.
#[derive(Clone, Debug, PartialEq)]
pub struct StateTensor {
    /// `L0.window`, `L3.k`, `ple0.window`, `draft.v`...
    pub name: String,
    /// How its numbers are stored.
    pub scalar: Scalar,
    /// Shape.
    pub shape: Vec<usize>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Names a tensor of a state and says where it lies.
pub(crate) struct Place<'a> {
    pub name: String,
    pub scalar: Scalar,
    pub shape: Vec<usize>,
    pub buffer: &'a Arc<Buffer>,
}

impl Place<'_> {
    pub fn bytes(&self) -> u64 {
        self.shape.iter().map(|&n| n as u64).product::<u64>() * self.scalar.bytes()
    }
}

impl State {
    /// An empty sequence.
    ///
    /// # Errors
    /// When the device has no room.
    pub(crate) fn new(backend: &dyn Backend, g: &Geometry, arithmetic: Arithmetic, draft: bool) -> Result<Self> {
        let shapes = Shapes::new(g);
        let alloc = |label, numbers: u32| -> Result<Arc<Buffer>> {
            Ok(Arc::new(backend.alloc(label, 4 * u64::from(numbers))?))
        };
        let mixer = |kind: &LayerKind| -> Result<MixerState> {
            Ok(match kind {
                LayerKind::Gdn => MixerState::Gdn(GdnState {
                    window: alloc("gdn window", (shapes.gdn.kernel - 1) * shapes.gdn.channels())?,
                    state: alloc("gdn state", shapes.gdn.state())?,
                }),
                LayerKind::Qsa => MixerState::Qsa(QsaState::new(backend, &shapes, arithmetic)?),
            })
        };
        Ok(State {
            shapes,
            arithmetic,
            timeline: Timeline::default(),
            mixers: g.layers.iter().map(mixer).collect::<Result<_>>()?,
            ple: g
                .ple
                .iter()
                .map(|_| alloc("ple window", shapes.ple.window() * shapes.streams.width()))
                .collect::<Result<_>>()?,
            context: Vec::new(),
            draft: if draft {
                Some(DraftState { timeline: Timeline::default(), mixer: mixer(&LayerKind::Qsa)? })
            } else {
                None
            },
            torn: false,
        })
    }

    /// Tokens read so far.
    pub fn tokens(&self) -> u32 {
        self.timeline.tokens
    }

    /// A state that goes its own way from here; memory is shared until one of the two writes.
    pub fn fork(&self) -> State {
        self.clone()
    }

    /// Keeps the last ids, as many as an n-gram of `order` ids looks back.
    pub(crate) fn remember(&mut self, ids: &[u32], order: u32) {
        self.context.extend_from_slice(ids);
        let keep = order.saturating_sub(1) as usize;
        self.context.drain(..self.context.len().saturating_sub(keep));
    }

    /// Whether another row of the main layers needs no new memory, because there is room and nothing is shared.
    pub(crate) fn takes_row_in_place(&mut self) -> bool {
        let needed = self.timeline.tokens + 1;
        let own = |held: &mut Arc<Buffer>| Arc::get_mut(held).is_some();
        self.ple.iter_mut().all(own)
            && self.mixers.iter_mut().all(|mixer| match mixer {
                MixerState::Gdn(s) => own(&mut s.window) && own(&mut s.state),
                MixerState::Qsa(s) => {
                    needed <= s.capacity && [&mut s.k, &mut s.v, &mut s.raw, &mut s.pooled].into_iter().all(own)
                }
            })
    }

    pub(crate) fn check_whole(&self) -> Result<()> {
        if self.torn { Err(Error::TornState) } else { Ok(()) }
    }

    /// Every tensor of the state: its used rows, read back. `architecture.md` section 13 lists the shapes.
    ///
    /// # Errors
    /// When the device is lost.
    pub fn tensors(&self, backend: &dyn Backend) -> Result<Vec<StateTensor>> {
        self.check_whole()?;
        let read = |place: Place<'_>| {
            let mut bytes = vec![0; place.bytes() as usize];
            backend.read(place.buffer, 0, &mut bytes)?;
            Ok(StateTensor { name: place.name, scalar: place.scalar, shape: place.shape, bytes })
        };
        self.places().into_iter().map(read).collect()
    }

    /// Bytes of device memory that this state holds, shared ones included.
    pub fn bytes(&self) -> u64 {
        let mixers = self.mixers.iter().chain(self.draft.iter().map(|d| &d.mixer));
        mixers.map(MixerState::bytes).sum::<u64>() + self.ple.iter().map(|b| b.bytes()).sum::<u64>()
    }

    pub(crate) fn places(&self) -> Vec<Place<'_>> {
        let ple = self.shapes.ple;
        let mut places = Vec::new();
        for (l, mixer) in self.mixers.iter().enumerate() {
            self.mixer_places(&format!("L{l}"), mixer, self.timeline.tokens, &mut places);
        }
        for (i, window) in self.ple.iter().enumerate() {
            let shape = vec![ple.window() as usize, ple.streams.width() as usize];
            places.push(Place { name: format!("ple{i}.window"), scalar: Scalar::F32, shape, buffer: window });
        }
        if let Some(draft) = &self.draft {
            self.mixer_places("draft", &draft.mixer, draft.timeline.tokens, &mut places);
        }
        places
    }

    fn mixer_places<'a>(&self, name: &str, mixer: &'a MixerState, tokens: u32, places: &mut Vec<Place<'a>>) {
        let gdn = self.shapes.gdn;
        match mixer {
            MixerState::Gdn(s) => {
                let window = vec![(gdn.kernel - 1) as usize, gdn.channels() as usize];
                let state = vec![gdn.value_heads as usize, gdn.value_dim as usize, gdn.key_dim as usize];
                places.push(Place {
                    name: format!("{name}.window"),
                    scalar: Scalar::F32,
                    shape: window,
                    buffer: &s.window,
                });
                places.push(Place {
                    name: format!("{name}.state"),
                    scalar: Scalar::F32,
                    shape: state,
                    buffer: &s.state,
                });
            }
            MixerState::Qsa(s) => self.qsa_places(name, s, tokens, places),
        }
    }

    fn qsa_places<'a>(&self, name: &str, s: &'a QsaState, tokens: u32, places: &mut Vec<Place<'a>>) {
        let q = &self.shapes.qsa;
        let scalar = self.arithmetic.cache_scalar();
        let kv = vec![tokens as usize, q.kv_heads as usize, q.head_dim as usize];
        let index = |rows: u32| vec![rows as usize, q.index_dim as usize];
        places.push(Place { name: format!("{name}.k"), scalar, shape: kv.clone(), buffer: &s.k });
        places.push(Place { name: format!("{name}.v"), scalar, shape: kv, buffer: &s.v });
        places.push(Place { name: format!("{name}.raw"), scalar, shape: index(tokens), buffer: &s.raw });
        places.push(Place {
            name: format!("{name}.pooled"),
            scalar,
            shape: index(tokens / q.block),
            buffer: &s.pooled,
        });
    }
}

/// Records the copies of a state's growth under their own stage.
pub(crate) fn at_state(rec: &mut Recorder, scope: Scope) -> &mut Recorder {
    rec.at(scope, Stage::State)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeline_remembers_where_blocks_begin_whatever_the_pass_ends() {
        let positions: Vec<Position> = (0..11).map(|i| [i, i + 1, i + 2]).collect();
        let mut whole = Timeline::default();
        whole.extend(&positions, 4);
        let mut parts = Timeline::default();
        for part in positions.chunks(3) {
            parts.extend(part, 4);
        }
        assert_eq!(whole, parts);
        assert_eq!(whole.starts, vec![[0, 1, 2], [4, 5, 6], [8, 9, 10]]);
        assert_eq!(whole.next, 13);
    }
}
