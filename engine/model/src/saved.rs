//! Owns: a sequence state as bytes and back (engine.md 7.1): a safetensors file whose metadata say whose it is.
//! Refuses: bytes of another model, profile, device or format, and bytes that were damaged; nothing is ever adapted.
//! Invariants: load(save(state)) goes on bit for bit like the state.

use std::collections::HashMap;

use safetensors::{Dtype, SafeTensors, serialize, tensor::TensorView};
use serde_json::{Value, json};
use ss_backend::Scalar;

use crate::rope::Position;
use crate::state::{MixerState, Room, State, StateTensor, Timeline};
use crate::{Error, Model, Result};

/// Version of the layout below; also stands for the arithmetic, and goes up when either changes.
const VERSION: u32 = 1;

/// The one metadata entry, a JSON object.
const KEY: &str = "slotstream";

fn dtype(scalar: Scalar) -> Dtype {
    match scalar {
        Scalar::Bf16 => Dtype::BF16,
        Scalar::F16 => Dtype::F16,
        Scalar::F32 => Dtype::F32,
    }
}

fn damaged(what: impl std::fmt::Display) -> Error {
    Error::SavedState(what.to_string())
}

fn timeline_json(t: &Timeline) -> Value {
    json!({ "tokens": t.tokens, "next": t.next, "starts": t.starts })
}

fn timeline(v: &Value, block: u32) -> Option<Timeline> {
    let number = |v: &Value| v.as_u64().and_then(|n| u32::try_from(n).ok());
    let start = |v: &Value| -> Option<Position> {
        v.as_array()?.iter().map(number).collect::<Option<Vec<_>>>()?.try_into().ok()
    };
    let t = Timeline {
        tokens: number(&v["tokens"])?,
        next: number(&v["next"])?,
        starts: v["starts"].as_array()?.iter().map(start).collect::<Option<_>>()?,
    };
    (t.starts.len() == t.tokens.div_ceil(block) as usize).then_some(t)
}

fn checksum(tensors: &[(&str, &[u8])]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    for (name, bytes) in tensors {
        hasher.update(name.as_bytes());
        hasher.update(bytes);
    }
    hasher.finalize()
}

impl Model {
    /// A name for the model itself, wherever its files lie and whatever runs it: 8 hexadecimal digits.
    ///
    /// # Errors
    /// When its files cannot be read.
    pub fn fingerprint(&self) -> Result<String> {
        let mixer = self.checkpoint.read_f32("model.hyper_connection_mixer.hc_norm.weight")?;
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(self.checkpoint.config().to_string().as_bytes());
        hasher.update(bytemuck::cast_slice(&mixer));
        Ok(format!("{:08x}", hasher.finalize()))
    }

    /// Says which states belong to this model on this device under this profile.
    fn identity(&self) -> Result<String> {
        let facts = self.backend.facts();
        Ok(format!("{} {} {} {} {}", self.fingerprint()?, self.arithmetic, facts.backend, facts.device, facts.driver))
    }

    /// A state as bytes.
    ///
    /// # Errors
    /// When the state is torn or the device is lost.
    pub fn save_state(&self, state: &State) -> Result<Vec<u8>> {
        let tensors = state.tensors(self.backend.as_ref())?;
        let sums: Vec<_> = tensors.iter().map(|t| (t.name.as_str(), t.bytes.as_slice())).collect();
        let meta = json!({
            "version": VERSION,
            "identity": self.identity()?,
            "checksum": checksum(&sums),
            "context": state.context,
            "timeline": timeline_json(&state.timeline),
            "draft": state.draft.as_ref().map(|d| timeline_json(&d.timeline)),
        });
        let view = |t: &'_ StateTensor| -> Result<(String, Vec<u8>, Dtype, Vec<usize>)> {
            Ok((t.name.clone(), t.bytes.clone(), dtype(t.scalar), t.shape.clone()))
        };
        let owned = tensors.iter().map(view).collect::<Result<Vec<_>>>()?;
        let views = owned.iter().map(|(name, bytes, dtype, shape)| {
            Ok((name, TensorView::new(*dtype, shape.clone(), bytes).map_err(damaged)?))
        });
        let views = views.collect::<Result<Vec<_>>>()?;
        serialize(views, Some(HashMap::from([(KEY.to_string(), meta.to_string())]))).map_err(damaged)
    }

    /// The state that [`Model::save_state`] wrote.
    ///
    /// # Errors
    /// [`Error::SavedState`] when the bytes are damaged or belong to another model, profile, device or version; also when
    /// the device has no room.
    pub fn load_state(&self, bytes: &[u8]) -> Result<State> {
        let (_, header) = SafeTensors::read_metadata(bytes).map_err(damaged)?;
        let file = SafeTensors::deserialize(bytes).map_err(damaged)?;
        let meta =
            header.metadata().as_ref().and_then(|m| m.get(KEY)).ok_or_else(|| damaged("it carries no description"))?;
        let meta: Value = serde_json::from_str(meta).map_err(damaged)?;
        if meta["version"] != json!(VERSION) {
            return Err(damaged(format!("it has version {}, this program writes version {VERSION}", meta["version"])));
        }
        let identity = self.identity()?;
        if meta["identity"] != json!(identity) {
            return Err(damaged(format!("it belongs to {}, this is \"{identity}\"", meta["identity"])));
        }
        let mut state = self.new_state()?;
        let block = self.shapes.qsa.block;
        let bad_timeline = || damaged("its description of positions does not add up");
        state.timeline = timeline(&meta["timeline"], block).ok_or_else(bad_timeline)?;
        if let Some(draft) = &mut state.draft {
            draft.timeline = timeline(&meta["draft"], block).ok_or_else(bad_timeline)?;
        }
        state.context = serde_json::from_value(meta["context"].clone()).map_err(damaged)?;
        self.check_saved(&state)?;
        self.fill(&mut state, &file, &meta)?;
        Ok(state)
    }

    fn check_saved(&self, state: &State) -> Result<()> {
        let g = self.geometry();
        let look_back = g.ngram.order.saturating_sub(1).min(state.timeline.tokens) as usize;
        if state.context.len() != look_back || state.context.iter().any(|&id| id >= g.vocab) {
            return Err(damaged("its last token ids do not fit the model"));
        }
        let draft = state.draft.as_ref().map_or(0, |d| d.timeline.tokens);
        match state.timeline.tokens.max(draft) > g.max_positions {
            true => Err(damaged("it is longer than the model reads")),
            false => Ok(()),
        }
    }

    fn fill(&self, state: &mut State, file: &SafeTensors<'_>, meta: &Value) -> Result<()> {
        let mut rec = ss_backend::Recorder::new(self.arithmetic);
        let (shapes, tokens) = (self.shapes, state.timeline.tokens);
        let room = |needed| Room {
            backend: self.backend.as_ref(),
            shapes: &shapes,
            arithmetic: self.arithmetic,
            used: 0,
            needed,
        };
        let draft = state.draft.iter_mut().map(|d| (&mut d.mixer, d.timeline.tokens));
        for (mixer, tokens) in state.mixers.iter_mut().map(|m| (m, tokens)).chain(draft) {
            if let MixerState::Qsa(qsa) = mixer {
                qsa.reserve(room(tokens), &mut rec)?;
            }
        }
        let mut sums = Vec::new();
        let places = state.places();
        for place in &places {
            let view = file.tensor(&place.name).map_err(damaged)?;
            if view.dtype() != dtype(place.scalar) || view.shape() != place.shape {
                return Err(damaged(format!("its tensor `{}` has another shape or type than the model's", place.name)));
            }
            sums.push((place.name.as_str(), view.data()));
        }
        if file.len() != places.len() || meta["checksum"] != json!(checksum(&sums)) {
            return Err(damaged("its checksum does not match its contents"));
        }
        for (place, (_, bytes)) in places.iter().zip(&sums) {
            if !bytes.is_empty() {
                self.backend.upload(place.buffer, 0, bytes)?;
            }
        }
        Ok(())
    }
}
