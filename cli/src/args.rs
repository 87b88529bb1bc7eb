//! Owns: every flag, documented once; help, completions, environment and configuration file come from here.
//! Refuses: two sizes that contradict each other, by name.
//! Invariants: a flag wins over its `SS_*` variable, and that over `config.toml` (engine.md section 9).

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use ss_backend::Arithmetic;
use ss_checkpoint::IoMode;
use ss_server::Thinking;
use ss_stream::PoolSize;

/// Runs Qwen3.8-Flash-Next on computers that cannot hold it: experts stream from the disk into a pool of slots.
#[derive(Debug, Parser)]
#[command(name = "ss", version = crate::VERSION, propagate_version = true, max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt, or chat when there is a terminal and no prompt
    Run(Box<RunArgs>),
    /// Describe a model directory: geometry, groups of bytes, what is missing
    Inspect(InspectArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Flags of `ss inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model directory
    pub dir: PathBuf,
    /// Print the report as JSON
    #[arg(long)]
    pub json: bool,
}

/// Flags of `ss run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// What to answer; text from standard input is appended to it
    pub prompt: Option<String>,
    /// Model and device.
    #[command(flatten)]
    pub load: LoadArgs,
    /// The reply.
    #[command(flatten)]
    pub reply: ReplyArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Write prompt and output ids, rates, hits, bytes read and peak memory to FILE as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub stats_json: Option<PathBuf>,
    /// Show where the time went
    #[arg(short, long, help_heading = "Output")]
    pub verbose: bool,
}

/// Flags that say which model runs on what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and device")]
pub struct LoadArgs {
    /// Model directory, or the name of one in the `models` folder of `$SS_HOME`; without it the small model of the repository
    #[arg(short, long, env = "SS_MODEL", value_name = "DIR|NAME")]
    pub model: Option<String>,
    /// Expert slots in memory: smallest, floor, 25%, 50%, all, or a number
    #[arg(long, env = "SS_SLOTS", value_name = "SIZE", conflicts_with = "experts_per_layer")]
    pub slots: Option<PoolSize>,
    /// Expert slots in memory, as an average for each layer
    #[arg(long, env = "SS_EXPERTS_PER_LAYER", value_name = "N", value_parser = PoolSize::per_layer)]
    pub experts_per_layer: Option<PoolSize>,
    /// Arithmetic profile: fast rounds the rows that attention reads to BF16 and the inputs of prompt GEMMs to F16; exact rounds nothing
    #[arg(long, env = "SS_ARITHMETIC", value_name = "exact|fast", default_value = "fast")]
    pub arithmetic: Arithmetic,
    /// What computes
    #[arg(long, env = "SS_BACKEND", value_enum, default_value = "auto")]
    pub backend: BackendChoice,
    /// Threads of the reference backend; 0 takes one for each core
    #[arg(long, env = "SS_THREADS", value_name = "N", default_value_t = 0)]
    pub threads: usize,
    /// Concurrent reads while a prompt is read
    #[arg(long, env = "SS_BULK_LANES", value_name = "N", default_value_t = ss_stream::LaneCounts::default().of(ss_stream::Lane::Bulk) as u16)]
    pub bulk_lanes: u16,
    /// Concurrent reads while a reply is written
    #[arg(long, env = "SS_DEMAND_LANES", value_name = "N", default_value_t = ss_stream::LaneCounts::default().of(ss_stream::Lane::Demand) as u16)]
    pub demand_lanes: u16,
    /// How expert files are read: cached goes through the system's file cache, direct around it; auto takes direct when
    /// the experts exceed half of memory
    #[arg(long, env = "SS_IO", value_name = "auto|cached|direct", default_value = "auto")]
    pub io: IoMode,
    /// Megabytes of n-gram rows kept in memory
    #[arg(long, env = "SS_NGRAM_CACHE_MB", value_name = "MB", default_value_t = ss_stream::ROW_CACHE_BYTES / 1_000_000)]
    pub ngram_cache_mb: u64,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    /// The best there is; today the reference backend
    Auto,
    /// Plain Rust on the processor
    Reference,
}

/// Flags that shape the reply.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reply")]
pub struct ReplyArgs {
    /// Most tokens of the reply; without it the model ends the reply, or the window does
    #[arg(short = 'n', long, env = "SS_MAX_TOKENS", value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_tokens: Option<u32>,
    /// Think before answering, at an effort of low, medium or xhigh; the thoughts go to standard error
    #[arg(long, env = "SS_THINK", value_name = "EFFORT", num_args = 0..=1, require_equals = true, default_missing_value = "on")]
    pub think: Option<Thinking>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long, conflicts_with_all = ["think", "system", "tools"])]
    pub raw: bool,
    /// System message
    #[arg(long, env = "SS_SYSTEM", value_name = "TEXT")]
    pub system: Option<String>,
    /// Tools that the model may call: a JSON list in OpenAI's form; a call is printed as one line of JSON
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// End the reply before this text; may be given up to 16 times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Prompt tokens read in one pass; changes speed and memory, never the answer
    #[arg(long, env = "SS_PREFILL_PASS", value_name = "N", default_value_t = ss_generate::DEFAULT_PREFILL_PASS,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub prefill_pass: u32,
}

/// Sampling flags; what is not given comes from the model's `generation_config.json`, then from the defaults of its kind.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// 0 is greedy; higher is more varied
    #[arg(long, visible_alias = "temp", env = "SS_TEMPERATURE", value_name = "T")]
    pub temperature: Option<f32>,
    /// Draw from the K likeliest tokens; 0 is off
    #[arg(long, env = "SS_TOP_K", value_name = "K")]
    pub top_k: Option<u32>,
    /// Draw from the likeliest tokens that hold this share together
    #[arg(long, env = "SS_TOP_P", value_name = "P")]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this share of the likeliest
    #[arg(long, env = "SS_MIN_P", value_name = "P")]
    pub min_p: Option<f32>,
    /// Subtracted from tokens that are in the reply already
    #[arg(long, env = "SS_PRESENCE_PENALTY", value_name = "X", allow_negative_numbers = true)]
    pub presence_penalty: Option<f32>,
    /// Subtracted for each time a token is in the reply
    #[arg(long, env = "SS_FREQUENCY_PENALTY", value_name = "X", allow_negative_numbers = true)]
    pub frequency_penalty: Option<f32>,
    /// Weakens tokens seen in prompt or reply; 1 is off
    #[arg(long, visible_alias = "repeat-penalty", env = "SS_REPETITION_PENALTY", value_name = "R")]
    pub repetition_penalty: Option<f32>,
    /// Added to the logit of a token; may be given many times
    #[arg(long, value_name = "ID=BIAS", value_parser = logit_bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, prompt and settings: same reply; without it a fresh one
    #[arg(long, env = "SS_SEED", value_name = "N")]
    pub seed: Option<u64>,
}

fn logit_bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, bias)| Some((id.trim().parse().ok()?, bias.trim().parse().ok()?)));
    match parsed {
        Some((id, bias)) if f32::is_finite(bias) => Ok((id, bias)),
        _ => Err(format!("`{text}` is not ID=BIAS with a token id and a number, such as `42=-5`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_flags_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_bias_is_an_id_and_a_finite_number() {
        assert_eq!(logit_bias("42=-5"), Ok((42, -5.0)));
        for wrong in ["42", "x=1", "42=inf", "-1=2", "42=NaN", "="] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_sizes_are_refused_by_name() {
        let error = Cli::try_parse_from(["ss", "run", "--slots", "all", "--experts-per-layer", "3"]).unwrap_err().to_string();
        assert!(error.contains("--slots") && error.contains("--experts-per-layer"), "{error}");
    }
}
