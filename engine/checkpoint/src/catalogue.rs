//! Owns: the list of all tensors of a model directory: which file holds each, and under which of the known names.
//! Refuses: shard names that are not plain file names, an index and shards that disagree, a tensor found twice.
//! Invariants: names are those of checkpoint.md section 2 without `language_model.`; only headers are read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::config::{Fields, present, read_json, shown_value};
use crate::error::{Error, Result, shown};
use crate::file::{Access, FileId, FileRange, PositionedFile};
use crate::header::{Dtype, HeaderTensor, read_header};

/// The index of a sharded checkpoint.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The index before it is whole: a checkpoint that is being made up has it from the beginning.
pub const UNFINISHED: &str = "model.safetensors.index.json.part";
/// A checkpoint in one file.
pub(crate) const SINGLE: &str = "model.safetensors";
/// The optional MTP layer.
pub(crate) const MTP: &str = "mtp.safetensors";

/// Most shards: far above any known checkpoint, below what a process may keep open.
const SHARD_LIMIT: usize = 512;

/// Where a tensor lies and what it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorInfo {
    /// Its name in the file.
    pub stored: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// Its bytes.
    pub range: FileRange,
}

/// Whose names a checkpoint uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Naming {
    /// The MLX conversion's (checkpoint.md section 2), with or without `language_model.`.
    Mlx,
    /// The original BF16 checkpoint's (section 5): `model.language_model.`, fused `experts.gate_up_proj`.
    HuggingFace,
}

/// All tensors of a model directory.
#[derive(Debug)]
pub(crate) struct Catalogue {
    pub dir: PathBuf,
    pub files: Vec<PositionedFile>,
    pub tensors: BTreeMap<String, TensorInfo>,
    pub naming: Naming,
    pub warnings: Vec<String>,
}

impl Catalogue {
    /// Opens the shards that the index names, or the single file, and `mtp.safetensors` beside them.
    pub fn open(dir: &Path) -> Result<Catalogue> {
        let mut catalogue = Catalogue {
            dir: dir.to_owned(),
            files: Vec::new(),
            tensors: BTreeMap::new(),
            naming: Naming::Mlx,
            warnings: Vec::new(),
        };
        let index = dir.join(INDEX);
        if present(&index) {
            catalogue.open_shards(&index)?;
        } else if present(&dir.join(SINGLE)) {
            let headers = catalogue.open_file(SINGLE)?;
            headers.1.into_iter().try_for_each(|tensor| catalogue.add(headers.0, tensor))?;
        } else {
            let needed = if present(&dir.join(UNFINISHED)) {
                "what writes this model has not finished, or was cut short; remove the folder and write it again"
            } else {
                "it names the weight files of a model (or put the weights into model.safetensors)"
            };
            return Err(Error::Missing { path: index, needed });
        }
        if present(&dir.join(MTP)) {
            let (file, tensors) = catalogue.open_file(MTP)?;
            tensors.into_iter().try_for_each(|tensor| catalogue.add(file, tensor))?;
        }
        Ok(catalogue)
    }

    /// The tensor of a name, if there is one.
    pub fn get(&self, name: &str) -> Option<&TensorInfo> {
        self.tensors.get(name)
    }

    /// The file of a tensor.
    pub fn path_of(&self, range: FileRange) -> &Path {
        self.files.get(range.file.0).map_or(&self.dir, PositionedFile::path)
    }

    fn open_file(&mut self, name: &str) -> Result<(FileId, Vec<HeaderTensor>)> {
        let path = self.dir.join(name);
        let file = PositionedFile::open(&path, Access::Cached)?;
        let tensors = read_header(&file)?;
        self.files.push(file);
        Ok((FileId(self.files.len() - 1), tensors))
    }

    fn open_shards(&mut self, index: &Path) -> Result<()> {
        let json = read_json(index)?;
        let root = Fields::root(&json, index)?;
        let map = weight_map(&root)?;
        let shards: BTreeSet<&str> = map.values().copied().collect();
        if shards.len() > SHARD_LIMIT {
            return Err(root.wrong("weight_map", format!("an object that names at most {SHARD_LIMIT} files")));
        }
        let mut total = 0u64;
        for shard in shards {
            let path = self.dir.join(shard);
            if !present(&path) {
                return Err(Error::Missing {
                    path,
                    needed: "model.safetensors.index.json names it; fetch the missing file",
                });
            }
            let (file, tensors) = self.open_file(shard)?;
            self.match_index(&map, shard, &path, &tensors)?;
            for tensor in tensors.into_iter().filter(|tensor| map.get(tensor.name.as_str()) == Some(&shard)) {
                total = total.saturating_add(tensor.bytes);
                self.add(file, tensor)?;
            }
        }
        self.compare_total(&root, total)
    }

    /// Everything that the index puts into a shard must be there; what it does not list is left alone.
    fn match_index(
        &mut self,
        map: &BTreeMap<&str, &str>,
        shard: &str,
        path: &Path,
        found: &[HeaderTensor],
    ) -> Result<()> {
        let names: BTreeSet<&str> = found.iter().map(|tensor| tensor.name.as_str()).collect();
        let listed = map.iter().filter(|(_, file)| **file == shard).map(|(name, _)| *name);
        for name in listed {
            if !names.contains(name) {
                let expected = "it, as model.safetensors.index.json puts it into this file".into();
                return Err(Error::Absent { path: path.to_owned(), tensor: shown(name), expected });
            }
        }
        let extra = names.iter().filter(|name| map.get(**name) != Some(&shard)).count();
        if extra > 0 {
            self.warnings.push(format!("{}: {extra} tensors are not in {INDEX} and are ignored", path.display()));
        }
        Ok(())
    }

    fn compare_total(&mut self, root: &Fields, total: u64) -> Result<()> {
        let Some(metadata) = root.object("metadata")? else { return Ok(()) };
        if let Some(claimed) = metadata.get("total_size")
            && claimed.as_u64() != Some(total)
        {
            let claimed = shown_value(claimed);
            let path = root.path().display();
            self.warnings.push(format!("{path}: metadata.total_size is {claimed}, but the tensors take {total} bytes"));
        }
        Ok(())
    }

    fn add(&mut self, file: FileId, tensor: HeaderTensor) -> Result<()> {
        let (name, naming) = canonical(&tensor.name);
        if naming == Naming::HuggingFace {
            self.naming = naming;
        }
        let range = FileRange { file, offset: tensor.offset, bytes: tensor.bytes };
        if let Some(other) = self.tensors.get(&name) {
            return Err(Error::Tensor {
                path: self.path_of(range).to_owned(),
                tensor: shown(&tensor.name),
                expected: "a name of its own".into(),
                found: format!("{} in {}", shown(&other.stored), self.path_of(other.range).display()),
            });
        }
        let info = TensorInfo { stored: tensor.name, dtype: tensor.dtype, shape: tensor.shape, range };
        self.tensors.insert(name, info);
        Ok(())
    }
}

/// The index's `weight_map`, its shard names checked.
fn weight_map<'a>(root: &Fields<'a>) -> Result<BTreeMap<&'a str, &'a str>> {
    let value = root.get("weight_map");
    let map = value.and_then(Value::as_object).ok_or_else(|| root.wrong("weight_map", "an object of file names"))?;
    let mut out = BTreeMap::new();
    for (name, shard) in map {
        let file = shard.as_str().filter(|file| is_plain(file)).ok_or_else(|| Error::Field {
            path: root.path().to_owned(),
            field: format!("weight_map[{}]", shown(name)),
            expected: "the plain name of a .safetensors file in the same folder".into(),
            found: shown_value(shard),
        })?;
        out.insert(name.as_str(), file);
    }
    if out.is_empty() {
        return Err(root.wrong("weight_map", "an object that is not empty"));
    }
    Ok(out)
}

/// Whether a name stays inside its folder on every system.
fn is_plain(name: &str) -> bool {
    let mut parts = Path::new(name).components();
    let one = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    one && name.ends_with(".safetensors") && !name.contains(['/', '\\', ':']) && !name.contains(char::is_control)
}

/// The name that checkpoint.md section 2 gives a stored tensor, and whose naming it was.
fn canonical(stored: &str) -> (String, Naming) {
    if let Some(rest) = stored.strip_prefix("language_model.") {
        return (rest.to_owned(), Naming::Mlx);
    }
    if let Some(rest) = stored.strip_prefix("model.language_model.") {
        return (format!("model.{rest}"), Naming::HuggingFace);
    }
    if let Some(rest) = stored.strip_prefix("model.visual.") {
        return (format!("vision_tower.{rest}"), Naming::HuggingFace);
    }
    let fused = stored.ends_with(".mlp.experts.gate_up_proj") && !stored.starts_with("mtp.");
    (stored.to_owned(), if fused { Naming::HuggingFace } else { Naming::Mlx })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_namings_come_to_one_name() {
        let same = "model.layers.3.mlp.gate.weight";
        for stored in
            ["language_model.model.layers.3.mlp.gate.weight", same, "model.language_model.layers.3.mlp.gate.weight"]
        {
            assert_eq!(canonical(stored).0, same);
        }
        assert_eq!(canonical("model.visual.pos_embed.weight").0, "vision_tower.pos_embed.weight");
        assert_eq!(canonical("model.layers.0.mlp.experts.gate_up_proj").1, Naming::HuggingFace);
        assert_eq!(canonical("lm_head.weight"), ("lm_head.weight".into(), Naming::Mlx));
    }

    #[test]
    fn only_plain_file_names_are_shards() {
        assert!(is_plain("model-00001.safetensors") && is_plain("a b.safetensors"));
        for name in [
            "",
            ".",
            "..",
            "../x.safetensors",
            "/x.safetensors",
            "a/b.safetensors",
            "a\\b.safetensors",
            "C:x.safetensors",
            "x.bin",
            "a\n.safetensors",
        ] {
            assert!(!is_plain(name), "{name:?}");
        }
    }
}
