//! Owns: golden sets: directories of tensors that two independent references agree on, beside the checkpoint that they were
//! made with.
//! Invariants: any directory of the same layout will do; `SS_GOLDENS` names one that replaces the repository's own.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use safetensors::{Dtype, SafeTensors};
use serde_json::Value;

/// A golden set.
pub struct Golden {
    /// Its directory.
    pub dir: PathBuf,
    /// Its last part, for messages.
    pub name: String,
    /// `meta.json`: prompts, chunks, special ids.
    pub meta: Value,
    /// `agreement.json`: how far the references are apart.
    pub agreement: Value,
}

/// One tensor, numbers widened.
#[derive(Clone, Debug)]
pub struct Tensor {
    /// Shape.
    pub shape: Vec<usize>,
    /// Numbers; integers as they are up to 2^53.
    pub values: Vec<f64>,
}

impl Tensor {
    /// As F32.
    pub fn f32(&self) -> Vec<f32> {
        self.values.iter().map(|&v| v as f32).collect()
    }

    /// As token ids.
    pub fn u32(&self) -> Vec<u32> {
        self.values.iter().map(|&v| v as u32).collect()
    }

    /// As ids of experts or blocks; -1 where a list holds nothing.
    pub fn i32(&self) -> Vec<i32> {
        self.values.iter().map(|&v| v as i32).collect()
    }

    /// Numbers in one item of the first dimension.
    pub fn width(&self) -> usize {
        self.shape[1..].iter().product()
    }
}

/// The tensors of one file.
pub type Tensors = HashMap<String, Tensor>;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the tests lie in the repository").to_path_buf()
}

/// All golden sets: the one that `SS_GOLDENS` names, else the repository's two.
pub fn goldens() -> Vec<Golden> {
    match std::env::var_os("SS_GOLDENS") {
        Some(dir) => vec![Golden::open(Path::new(&dir))],
        None => ["dev", "odd"].iter().map(|name| Golden::open(&root().join("tests/goldens").join(name))).collect(),
    }
}

fn json(path: &Path) -> Value {
    let text = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

impl Golden {
    /// Opens a set.
    pub fn open(dir: &Path) -> Self {
        let name = dir.file_name().map_or_else(String::new, |n| n.to_string_lossy().into_owned());
        Golden {
            dir: dir.to_path_buf(),
            name,
            meta: json(&dir.join("meta.json")),
            agreement: json(&dir.join("agreement.json")),
        }
    }

    /// The checkpoint.
    pub fn model(&self) -> PathBuf {
        self.dir.join("model")
    }

    /// Whether the set holds this file. The repository's second set is kept small.
    pub fn has(&self, file: &str) -> bool {
        self.dir.join(format!("{file}.safetensors")).exists()
    }

    /// The tensors of a file.
    pub fn tensors(&self, file: &str) -> Tensors {
        read_tensors(&self.dir.join(format!("{file}.safetensors")))
    }

    /// The prompt of `n` tokens.
    pub fn prompt(&self, n: usize) -> Vec<u32> {
        let ids = self.meta["prompts"][n.to_string()].as_array().expect("the prompt is in meta.json");
        ids.iter().map(|id| id.as_u64().expect("an id") as u32).collect()
    }

    /// Text and chat cases.
    pub fn text(&self) -> Value {
        json(&self.dir.join("text.json"))
    }
}

/// The tensors of a file.
pub fn read_tensors(path: &Path) -> Tensors {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let file = SafeTensors::deserialize(&bytes).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let widen = |view: &safetensors::tensor::TensorView<'_>| -> Vec<f64> {
        let data = view.data();
        match view.dtype() {
            Dtype::F32 => data.as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b).into()).collect(),
            Dtype::I32 => data.as_chunks::<4>().0.iter().map(|b| i32::from_le_bytes(*b).into()).collect(),
            Dtype::I64 => data.as_chunks::<8>().0.iter().map(|b| i64::from_le_bytes(*b) as f64).collect(),
            Dtype::U8 => data.iter().map(|&b| b.into()).collect(),
            other => panic!("{}: goldens do not use {other:?}", path.display()),
        }
    };
    file.tensors()
        .iter()
        .map(|(name, view)| (name.clone(), Tensor { shape: view.shape().to_vec(), values: widen(view) }))
        .collect()
}
