//! What is written: replies to the prompts that the repository ships for this model, greedy and drawn.

use serde_json::Value;
use ss_benches::nano;
use ss_generate::SamplerSettings;

/// Tokens of a reply.
pub const REPLY: usize = 128;
/// Ids of a document that are read as a prompt.
const OPENING: usize = 48;
/// Every so many documents one is used.
const STRIDE: usize = 5;

/// A prompt and how its reply is drawn.
pub struct Text {
    pub prompt: Vec<u32>,
    pub settings: SamplerSettings,
}

/// The prompts, each with a greedy reply and one at temperature 0.7.
pub fn all() -> Vec<Text> {
    let prompts = prompts();
    let seeded = |seed| SamplerSettings { temperature: 0.7, top_k: 20, seed, ..SamplerSettings::greedy() };
    let drawn = prompts.iter().cloned().zip(1..).map(|(prompt, seed)| Text { prompt, settings: seeded(seed) });
    let greedy = prompts.iter().map(|prompt| Text { prompt: prompt.clone(), settings: SamplerSettings::greedy() });
    greedy.chain(drawn).collect()
}

/// Prompts whose replies are known, and the openings of documents that the model never saw.
fn prompts() -> Vec<Vec<u32>> {
    let known = read("../flash-next-nano-expected.json");
    let unseen = read("../nano-heldout.json");
    let known = list(&known["cases"]).iter().map(|case| ids(&case["prompt_ids"]));
    let documents = list(&unseen["documents"]).iter().map(ids).filter(|ids| ids.len() > OPENING).step_by(STRIDE);
    known.chain(documents.map(|ids| ids[..OPENING].to_vec())).collect()
}

fn read(name: &str) -> Value {
    let path = nano().join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn ids(value: &Value) -> Vec<u32> {
    list(value).iter().filter_map(Value::as_u64).map(|id| id as u32).collect()
}
