//! Owns: what may restrict a reply token by token, and the mask that stands for it on the device.
//! Refuses: a mask that allows nothing, since an id must be drawn from it.
//! Invariants: a mask is uploaded only when it differs from the one before; however a reply ends, its mask ends with it.

use ss_model::Model;

use crate::{Error, Result};

/// Says which ids may come next in a reply.
pub trait Constraint: Send {
    /// The ids that may be drawn next: bit `id % 32` of word `id / 32`; ids past the words may not. `None` allows all.
    ///
    /// # Errors
    /// When the constraint cannot be kept.
    fn mask(&mut self) -> Result<Option<&[u32]>>;

    /// Says that this id was drawn and belongs to the reply. The id that ends a reply is not told.
    ///
    /// # Errors
    /// When the id was not allowed.
    fn accept(&mut self, id: u32) -> Result<()>;
}

/// The constraint of a reply, if there is one.
pub(crate) struct Held<'c> {
    constraint: Option<&'c mut dyn Constraint>,
}

impl<'c> Held<'c> {
    pub(crate) fn new(constraint: Option<&'c mut dyn Constraint>) -> Self {
        Held { constraint }
    }

    /// Has `set` restrict the next draw, and gives what it gave.
    pub(crate) fn restrict(&mut self, set: impl FnOnce(Option<&[u32]>) -> ss_model::Result<()>) -> Result<()> {
        let Some(constraint) = &mut self.constraint else { return Ok(()) };
        let mask = constraint.mask()?;
        if mask.is_some_and(|words| words.iter().all(|&word| word == 0)) {
            return Err(Error::Constraint("no token may come next".to_owned()));
        }
        Ok(set(mask)?)
    }

    /// Tells the constraint what was drawn.
    pub(crate) fn accept(&mut self, id: u32) -> Result<()> {
        match &mut self.constraint {
            Some(constraint) => constraint.accept(id),
            None => Ok(()),
        }
    }

    /// Takes the mask away.
    pub(crate) fn release(self, model: &mut Model) -> Result<()> {
        match self.constraint {
            Some(_) => Ok(model.set_mask(None)?),
            None => Ok(()),
        }
    }
}
