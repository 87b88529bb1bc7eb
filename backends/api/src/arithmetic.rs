//! Owns: the two arithmetic profiles and the two forms of a row (engine.md sections 3.3, 3.5 and 3.7).
//! Invariants: profile and form pick the arithmetic; the number of rows never does.

use std::fmt;
use std::str::FromStr;

use crate::Scalar;

/// An arithmetic profile (engine.md 3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Arithmetic {
    /// Everything in F32.
    Exact,
    /// K, V and indexer rows stored in BF16; on devices with matrix units, inputs of prompt GEMMs rounded once to F16.
    #[default]
    Fast,
}

impl Arithmetic {
    /// How K, V and indexer rows are stored.
    pub const fn cache_scalar(self) -> Scalar {
        match self {
            Arithmetic::Exact => Scalar::F32,
            Arithmetic::Fast => Scalar::Bf16,
        }
    }

    /// Whether a GEMM over rows of this form rounds its inputs to F16 on a device with matrix units (engine.md 3.5).
    pub const fn rounds_inputs(self, form: Form) -> bool {
        matches!((self, form), (Arithmetic::Fast, Form::Prompt))
    }

    /// The name used in flags, statistics and cache identities.
    pub const fn name(self) -> &'static str {
        match self {
            Arithmetic::Exact => "exact",
            Arithmetic::Fast => "fast",
        }
    }
}

impl fmt::Display for Arithmetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Arithmetic {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "exact" => Ok(Arithmetic::Exact),
            "fast" => Ok(Arithmetic::Fast),
            other => Err(format!("`{other}` is not an arithmetic profile: use `exact` or `fast`")),
        }
    }
}

/// Which kernels a row goes through (engine.md 3.7a).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A row of a prompt, also the last one, also alone: the prefill kernels.
    Prompt,
    /// A generated or drafted row: the decode kernels.
    Generated,
}

/// The rows of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rows {
    /// How many.
    pub count: u32,
    /// Which kernels they go through.
    pub form: Form,
}
