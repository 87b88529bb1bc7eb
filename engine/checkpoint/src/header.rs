//! Owns: the header of a safetensors file (checkpoint.md section 4); the data behind it is never touched.
//! Refuses: headers over 100 MB or past the end of the file, names given twice, types we do not know, ranges that overlap,
//! leave the file, or disagree with shape and type.
//! Invariants: sums and products are checked; memory is bounded by the header's own size. Holes between tensors are allowed,
//! since other writers pad: the `safetensors` crate refuses them, which is why this parser is ours.

use std::collections::HashSet;
use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};

use crate::error::{Error, Result, shown};
use crate::file::PositionedFile;

/// Largest header, as everywhere in the format.
const HEADER_LIMIT: u64 = 100_000_000;
/// The length field before the header.
const PREFIX: u64 = 8;
/// Most tensors in a file, and most dimensions of a tensor: far above any model's, so that memory stays bounded.
const TENSOR_LIMIT: usize = 1 << 18;
const RANK_LIMIT: usize = 16;
/// The one key that is not a tensor.
const METADATA: &str = "__metadata__";

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// One byte, 0 or 1.
    Bool,
    /// Unsigned, 1 byte.
    U8,
    /// Signed, 1 byte.
    I8,
    /// Float of 1 byte, 4 bits of exponent.
    F8E4m3,
    /// Float of 1 byte, 5 bits of exponent.
    F8E5m2,
    /// A power of two in 1 byte.
    F8E8m0,
    /// Unsigned, 2 bytes.
    U16,
    /// Signed, 2 bytes.
    I16,
    /// IEEE half precision.
    F16,
    /// The upper half of an F32.
    Bf16,
    /// Unsigned, 4 bytes.
    U32,
    /// Signed, 4 bytes.
    I32,
    /// IEEE single precision.
    F32,
    /// Unsigned, 8 bytes.
    U64,
    /// Signed, 8 bytes.
    I64,
    /// IEEE double precision.
    F64,
}

impl Dtype {
    const ALL: [(Dtype, &'static str, u64); 16] = [
        (Dtype::Bool, "BOOL", 1),
        (Dtype::U8, "U8", 1),
        (Dtype::I8, "I8", 1),
        (Dtype::F8E4m3, "F8_E4M3", 1),
        (Dtype::F8E5m2, "F8_E5M2", 1),
        (Dtype::F8E8m0, "F8_E8M0", 1),
        (Dtype::U16, "U16", 2),
        (Dtype::I16, "I16", 2),
        (Dtype::F16, "F16", 2),
        (Dtype::Bf16, "BF16", 2),
        (Dtype::U32, "U32", 4),
        (Dtype::I32, "I32", 4),
        (Dtype::F32, "F32", 4),
        (Dtype::U64, "U64", 8),
        (Dtype::I64, "I64", 8),
        (Dtype::F64, "F64", 8),
    ];

    fn parse(name: &str) -> Option<Dtype> {
        Self::ALL.iter().find(|(_, known, _)| *known == name).map(|(dtype, ..)| *dtype)
    }

    fn row(self) -> (&'static str, u64) {
        Self::ALL.iter().find(|(dtype, ..)| *dtype == self).map_or(("", 0), |(_, name, bytes)| (name, *bytes))
    }

    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        self.row().1
    }
}

impl fmt::Display for Dtype {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.row().0)
    }
}

/// One tensor of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeaderTensor {
    /// Its name in the file.
    pub name: String,
    /// Element type.
    pub dtype: Dtype,
    /// Dimensions, outermost first.
    pub shape: Vec<u64>,
    /// First byte, from the start of the file.
    pub offset: u64,
    /// How many bytes.
    pub bytes: u64,
}

/// Reads and checks the header of an open file.
pub(crate) fn read_header(file: &PositionedFile) -> Result<Vec<HeaderTensor>> {
    parse_header(&header_bytes(file)?, file.len(), file.path())
}

/// The JSON text of a file's header.
pub(crate) fn header_bytes(file: &PositionedFile) -> Result<Vec<u8>> {
    let path = file.path();
    if file.len() < PREFIX {
        return Err(Error::header(path, format!("is missing: the file has {} bytes, expected at least 8", file.len())));
    }
    let mut prefix = [0; PREFIX as usize];
    file.read_at(0, &mut prefix)?;
    let length = u64::from_le_bytes(prefix);
    if length > HEADER_LIMIT {
        return Err(Error::header(path, format!("claims {length} bytes, expected at most {HEADER_LIMIT}")));
    }
    if length > file.len() - PREFIX {
        let found = file.len() - PREFIX;
        return Err(Error::header(
            path,
            format!("claims {length} bytes, but only {found} follow it: the file is truncated"),
        ));
    }
    let mut json = vec![0; length as usize];
    file.read_at(PREFIX, &mut json)?;
    Ok(json)
}

/// Checks the JSON text of a header. `file_bytes` is the length of the whole file, `path` is for messages.
pub fn parse_header(json: &[u8], file_bytes: u64, path: &Path) -> Result<Vec<HeaderTensor>> {
    let entries: Entries = serde_json::from_slice(json)
        .map_err(|cause| Error::header(path, format!("is not valid: {}", shown(&cause.to_string()))))?;
    let data = PREFIX + json.len() as u64;
    let mut tensors = Vec::with_capacity(entries.0.len());
    for (name, entry) in entries.0 {
        tensors.push(place(name, entry, data, file_bytes, path)?);
    }
    refuse_overlap(&tensors, path)?;
    Ok(tensors)
}

/// Turns an entry into an absolute range inside the file.
fn place(name: String, entry: Entry, data: u64, file_bytes: u64, path: &Path) -> Result<HeaderTensor> {
    let wrong = |expected: String, found: String| Error::Tensor {
        path: path.to_owned(),
        tensor: shown(&name),
        expected,
        found,
    };
    let Some(dtype) = Dtype::parse(&entry.dtype) else {
        return Err(wrong("a known type such as U32, BF16 or I64".into(), shown(&entry.dtype)));
    };
    let elements = entry.shape.iter().try_fold(1u64, |product, &size| product.checked_mul(size));
    let Some(size) = elements.and_then(|n| n.checked_mul(dtype.bytes())) else {
        return Err(wrong("a size below 2^64 bytes".into(), format!("shape {}", shown_shape(&entry.shape))));
    };
    let [begin, end] = entry.data_offsets;
    if end.checked_sub(begin) != Some(size) {
        let expected = format!("{size} bytes of data ({dtype} {})", shown_shape(&entry.shape));
        return Err(wrong(expected, format!("data_offsets [{begin}, {end}]")));
    }
    match data.checked_add(end) {
        Some(last) if last <= file_bytes => {
            Ok(HeaderTensor { name, dtype, shape: entry.shape, offset: data + begin, bytes: size })
        }
        _ => {
            let room = file_bytes.saturating_sub(data);
            Err(wrong(
                format!("data that end at byte {end}"),
                format!("only {room} bytes of data: the file is truncated"),
            ))
        }
    }
}

fn refuse_overlap(tensors: &[HeaderTensor], path: &Path) -> Result<()> {
    let mut order: Vec<&HeaderTensor> = tensors.iter().filter(|tensor| tensor.bytes > 0).collect();
    order.sort_by_key(|tensor| tensor.offset);
    for pair in order.windows(2) {
        if let [first, second] = pair
            && first.offset + first.bytes > second.offset
        {
            return Err(Error::Tensor {
                path: path.to_owned(),
                tensor: shown(&second.name),
                expected: "bytes of its own".into(),
                found: format!("that they overlap those of {}", shown(&first.name)),
            });
        }
    }
    Ok(())
}

/// A shape, fit for a message.
pub(crate) fn shown_shape(shape: &[u64]) -> String {
    const DIMENSIONS: usize = 8;
    if shape.len() > DIMENSIONS { format!("of {} dimensions", shape.len()) } else { format!("{shape:?}") }
}

/// The header as JSON has it, in file order.
struct Entries(Vec<(String, Entry)>);

#[derive(Deserialize)]
struct Entry {
    dtype: String,
    #[serde(deserialize_with = "short_list")]
    shape: Vec<u64>,
    data_offsets: [u64; 2],
}

fn short_list<'de, D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Vec<u64>, D::Error> {
    deserializer.deserialize_seq(ShapeVisitor)
}

struct ShapeVisitor;

impl<'de> Visitor<'de> for ShapeVisitor {
    type Value = Vec<u64>;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "a shape as a sequence of at most {RANK_LIMIT} sizes")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sizes: A) -> std::result::Result<Vec<u64>, A::Error> {
        let mut shape = Vec::new();
        while let Some(size) = sizes.next_element()? {
            if shape.len() == RANK_LIMIT {
                return Err(A::Error::custom(format!("a shape of more than {RANK_LIMIT} sizes")));
            }
            shape.push(size);
        }
        Ok(shape)
    }
}

impl<'de> Deserialize<'de> for Entries {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        deserializer.deserialize_map(EntriesVisitor)
    }
}

struct EntriesVisitor;

impl<'de> Visitor<'de> for EntriesVisitor {
    type Value = Entries;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Entries, A::Error> {
        let mut seen = HashSet::new();
        let mut entries = Vec::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == METADATA {
                map.next_value_seed(StringMap)?;
            } else {
                let entry = map.next_value();
                let entry = entry.map_err(|cause| A::Error::custom(format!("tensor {}: {cause}", shown(&name))))?;
                entries.push((name.clone(), entry));
            }
            if entries.len() > TENSOR_LIMIT {
                return Err(A::Error::custom(format!("more than {TENSOR_LIMIT} tensors")));
            }
            if let Some(twice) = seen.replace(name) {
                return Err(A::Error::custom(format!("{} is there twice", shown(&twice))));
            }
        }
        Ok(Entries(entries))
    }
}

/// `__metadata__`: strings to strings, looked at and forgotten.
struct StringMap;

impl<'de> DeserializeSeed<'de> for StringMap {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> std::result::Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for StringMap {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("__metadata__ as an object of strings")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<(), A::Error> {
        while map.next_entry::<String, String>()?.is_some() {}
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str, data: u64) -> Result<Vec<HeaderTensor>> {
        parse_header(json.as_bytes(), PREFIX + json.len() as u64 + data, Path::new("x.safetensors"))
    }

    #[test]
    fn holes_empty_tensors_scalars_metadata_and_trailing_spaces_are_fine() {
        let json = r#"{"__metadata__":{"format":"mlx"},
            "a":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},
            "b":{"dtype":"U32","shape":[],"data_offsets":[32,36]},
            "c":{"dtype":"I64","shape":[0,7],"data_offsets":[8,8]}}    "#;
        let tensors = parse(json, 40).unwrap();
        let data = PREFIX + json.len() as u64;
        assert_eq!(tensors.len(), 3);
        assert_eq!((tensors[0].offset, tensors[0].bytes), (data + 4, 12));
        assert_eq!((tensors[1].offset, tensors[1].bytes), (data + 32, 4));
        assert_eq!(tensors[2].bytes, 0);
    }

    #[test]
    fn every_type_knows_its_own_name() {
        for (dtype, name, bytes) in Dtype::ALL {
            assert_eq!(Dtype::parse(name), Some(dtype));
            assert_eq!((dtype.to_string().as_str(), dtype.bytes()), (name, bytes));
        }
        assert_eq!(Dtype::parse("bf16"), None);
    }

    #[test]
    fn a_hundred_thousand_brackets_are_an_error_not_a_stack_overflow() {
        for json in ["[".repeat(100_000), format!("{{\"a\":{}", "[".repeat(100_000)), "{\"a\":".repeat(100_000)] {
            assert!(parse(&json, 0).unwrap_err().to_string().contains("is not valid"));
        }
        let nested = format!(
            r#"{{"a":{{"dtype":"U8","shape":[],"data_offsets":[0,1],"x":{}1{}}}}}"#,
            "[".repeat(100_000),
            "]".repeat(100_000)
        );
        assert!(parse(&nested, 1).is_ok(), "a field that nobody asks for is skipped without recursion");
    }
}
