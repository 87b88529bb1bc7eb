//! Owns: whether n-gram tables hold rows at all: zeros are rows like any other, so that nothing else would notice.
//! Refuses: a table of which a shard is zeros, unless the configuration says that it was left so.
//! Invariants: a sample is read, of a filled shard one block; a table that is read from a pack has checksums and passes.

use super::Checkpoint;
use crate::error::{Error, Result, shown};
use crate::file::FileRange;
use crate::sample::blocks;

/// The field of `config.json` that says that n-gram rows were left as zeros on purpose.
pub const SPARSE_NGRAMS: &str = "sparse_ngram_rows";

impl Checkpoint {
    /// Refuses a table that reads as zeros where it should not: what is left of one whose space was given back once its
    /// pack, and the file that tells of it, are lost.
    ///
    /// # Errors
    /// [`Error::Blank`] with the first shard of zeros; [`Error::Io`] where it cannot be read.
    pub fn check_ngram_filled(&self, ple_index: usize) -> Result<()> {
        let sparse = self.config.get(SPARSE_NGRAMS).is_some_and(|sparse| sparse == true);
        let Some(store) = self.ngram.get(ple_index).filter(|_| !sparse && self.packs.ngram.is_none()) else {
            return Ok(());
        };
        for shard in &store.shards {
            // A row of any number other than zero has a scale.
            let numbers = shard.scales.unwrap_or(shard.codes);
            if self.is_zeros(numbers)? {
                return Err(self.blank(numbers));
            }
        }
        Ok(())
    }

    fn is_zeros(&self, range: FileRange) -> Result<bool> {
        let (file, mut block) = (self.file(range.file)?, Vec::new());
        for (offset, bytes) in blocks(range.offset, range.bytes) {
            block.resize(bytes, 0);
            file.read_at(offset, &mut block)?;
            if block.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn blank(&self, numbers: FileRange) -> Error {
        let tensor = self.tensors().find(|(_, info)| info.range == numbers);
        let tensor = tensor.map_or_else(String::new, |(_, info)| shown(&info.stored));
        Error::Blank { path: self.catalogue.path_of(numbers).to_owned(), tensor }
    }
}
