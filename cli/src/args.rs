//! Owns: every flag, documented once.
//! Refuses: values out of range.
//! Invariants: help, variables, `config.toml` and completions all follow from the list here (engine.md section 9).

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ss_backend::Arithmetic;
use ss_checkpoint::IoMode;
use ss_server::Thinking;
use ss_stream::{Lane, LaneCounts, PoolSize};

use crate::values;

/// Most threads of the reference backend: more than any machine it is for has processors.
const MOST_THREADS: i64 = 1024;
/// Most rows of a pass (engine.md, words).
const MOST_ROWS: i64 = 4096;
/// Megabytes of n-gram rows kept unless told otherwise.
const ROW_CACHE_MB: u64 = ss_stream::ROW_CACHE_BYTES / 1_000_000;

/// Lanes unless told otherwise; they are set as a `u16`.
fn lanes(lane: Lane) -> u16 {
    LaneCounts::default().of(lane) as u16
}

const AFTER: &str = "\
Every flag has a variable, as SS_MAX_TOKENS for --max-tokens, and a setting in config.toml in $SS_HOME, as max-tokens = \
500. A flag wins over its variable, and that over the file.

Exit codes: 0 answered, 2 wrong usage or a bad model, 3 no memory, 4 the device failed, 130 Ctrl-C.";

const EXAMPLES: &str = "\
Examples:
  ss run \"How do I make tea?\"
  ss run --think=low \"What is the capital of Japan?\" 2> thoughts.txt
  cat notes.txt | ss run --model ~/models/flash-next \"Sum this up\"
  ss run --raw --temperature 0 --max-tokens 50 \"Once upon a time\"";

const BENCH_EXAMPLES: &str = "\
Examples:
  ss bench                                       the small model, all experts in memory
  ss bench --slots floor,50%,all -p 0 -n 256     replies at three sizes of the pool
  ss bench --adapter llvmpipe -p 64 -n 8 -r 1    software Vulkan, which is slow
  ss bench --json > bench.json                   the figures as JSON; the table is shown meanwhile";

/// Runs Qwen3.8-Flash-Next on computers that cannot hold it: experts stream from the disk into a pool of slots.
#[derive(Debug, Parser)]
#[command(name = "ss", version = crate::VERSION, max_term_width = 100, after_help = AFTER)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line, which tells a negative number from a flag.
    pub fn definition() -> clap::Command {
        Cli::command().mut_subcommands(|sub| {
            sub.mut_args(|arg| if arg.get_action().takes_values() { arg.allow_negative_numbers(true) } else { arg })
        })
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer a prompt, or chat when there is a terminal and no prompt
    #[command(after_help = EXAMPLES)]
    Run(Box<RunArgs>),
    /// Describe a model directory: geometry, groups of bytes, what is missing
    Inspect(InspectArgs),
    /// List what can compute here: the processor, and each adapter of a GPU driver
    Devices(DevicesArgs),
    /// Prove a device: parity, row invariance and repeatability of every operation
    Selftest(SelftestArgs),
    /// Measure how fast a model reads prompts and writes replies here
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Flags of `ss inspect`.
#[derive(Debug, Args)]
pub struct InspectArgs {
    /// Model directory, or the name of one in the `models` folder of `$SS_HOME`
    pub dir: PathBuf,
    /// Print the report as JSON
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Flags of `ss devices`.
#[derive(Debug, Args)]
pub struct DevicesArgs {
    /// Show everything that is known of each
    #[arg(short, long, value_parser = BoolishValueParser::new())]
    pub verbose: bool,
    /// Print the list as JSON
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Flags of `ss selftest`.
#[derive(Debug, Args)]
pub struct SelftestArgs {
    /// What computes.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Only what the first start on a new driver checks: one case of each operation in one profile
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub quick: bool,
    /// Only operations with NAME in their name
    #[arg(long, value_name = "NAME")]
    pub operation: Option<String>,
    /// Print the table as JSON
    #[arg(long, value_parser = BoolishValueParser::new())]
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
    /// The slot pool.
    #[command(flatten)]
    pub pool: PoolArgs,
    /// The reply.
    #[command(flatten)]
    pub reply: ReplyArgs,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Write prompt and output ids, rates, hits, bytes read and peak memory to FILE as JSON
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub stats_json: Option<PathBuf>,
    /// Show on what it ran and where the time went
    #[arg(short, long, help_heading = "Output", value_parser = BoolishValueParser::new())]
    pub verbose: bool,
}

/// Flags of `ss bench`.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Model and device.
    #[command(flatten)]
    pub load: LoadArgs,
    /// Sizes of the slot pool to compare, as for `ss run`; without it all experts, or as many as fit
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub slots: Vec<PoolSize>,
    /// Prompt tokens to read, for each a test; 0 leaves prompts out
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', default_value = "512", help_heading = "Tests")]
    pub prompt_tokens: Vec<u32>,
    /// Reply tokens to write, for each a test; 0 leaves replies out
    #[arg(
        short = 'n',
        long,
        value_name = "N,...",
        value_delimiter = ',',
        default_value = "128",
        help_heading = "Tests"
    )]
    pub reply_tokens: Vec<u32>,
    /// Tokens that are in the window before a test begins
    #[arg(short, long, value_name = "N,...", value_delimiter = ',', default_value = "0", help_heading = "Tests")]
    pub depth: Vec<u32>,
    /// Runs of each test, after one that is not counted
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Tests")]
    pub repetitions: u32,
    /// Prompt tokens read in one pass
    #[arg(long, value_name = "N", default_value_t = ss_generate::DEFAULT_PREFILL_PASS,
          value_parser = clap::value_parser!(u32).range(1..=MOST_ROWS), help_heading = "Tests")]
    pub prefill_pass: u32,
    /// Print the figures as JSON; the table goes to standard error then
    #[arg(long, help_heading = "Output", value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Flags that say which model runs on what.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and device")]
pub struct LoadArgs {
    /// Model directory, or the name of one in the `models` folder of `$SS_HOME`; without it the small model of the
    /// repository
    #[arg(short, long, value_name = "DIR|NAME")]
    pub model: Option<PathBuf>,
    /// Arithmetic profile: fast rounds the rows that attention reads to BF16; exact rounds nothing
    #[arg(long, value_name = "PROFILE", default_value = "fast", value_parser = values::profile())]
    pub arithmetic: Arithmetic,
    /// What computes.
    #[command(flatten)]
    pub device: DeviceArgs,
    /// Concurrent reads while a prompt is read
    #[arg(long, value_name = "N", default_value_t = lanes(Lane::Bulk), value_parser = clap::value_parser!(u16).range(1..=256))]
    pub bulk_lanes: u16,
    /// Concurrent reads while a reply is written
    #[arg(long, value_name = "N", default_value_t = lanes(Lane::Demand), value_parser = clap::value_parser!(u16).range(1..=256))]
    pub demand_lanes: u16,
    /// How expert files are read: cached goes through the system's file cache, direct around it; auto takes direct when
    /// the experts exceed half of memory
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = values::io())]
    pub io: IoMode,
    /// Megabytes of n-gram rows kept in memory
    #[arg(long, value_name = "MB", default_value_t = ROW_CACHE_MB, value_parser = values::whole)]
    pub ngram_cache_mb: u64,
}

/// Flags that say how many experts stay in memory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and device")]
pub struct PoolArgs {
    /// Expert slots in memory: smallest, floor, a percentage such as 25%, all, or a number; without it as many as a quarter of
    /// memory holds, and at least the floor
    #[arg(long, value_name = "SIZE")]
    pub slots: Option<PoolSize>,
    /// Expert slots in memory, as an average for each layer
    #[arg(long, value_name = "N", value_parser = PoolSize::per_layer)]
    pub experts_per_layer: Option<PoolSize>,
}

impl PoolArgs {
    /// The size, if somebody says.
    pub fn size(&self) -> Option<PoolSize> {
        self.slots.or(self.experts_per_layer)
    }
}

/// Flags that say what computes.
#[derive(Clone, Debug, Args)]
pub struct DeviceArgs {
    /// What computes: reference is plain Rust on the processor, wgpu a GPU through Vulkan or Metal; auto takes the GPU
    /// where there is one
    #[arg(long, value_enum, default_value = "auto")]
    pub backend: BackendChoice,
    /// The GPU adapter with NAME in its name, as `ss devices` lists them; the only way to one that is software
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub adapter: Option<String>,
    /// Threads of the reference backend; 0 takes one for each core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=MOST_THREADS))]
    pub threads: u16,
}

/// What computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum BackendChoice {
    // No doc comments here: clap would spread the whole help over four times the lines to show them.
    Auto,
    Reference,
    Wgpu,
}

/// Flags that shape the reply.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Reply")]
pub struct ReplyArgs {
    /// Most tokens of the reply; without it the model ends the reply, or the window does
    #[arg(short = 'n', long, value_name = "N", value_parser = values::max_tokens)]
    pub max_tokens: Option<u32>,
    /// Think before answering, at an effort of low, medium or xhigh; the thoughts go to standard error
    #[arg(long, value_name = "EFFORT", num_args = 0..=1, require_equals = true, default_missing_value = "on",
          value_parser = values::effort(), hide_possible_values = true)]
    pub think: Option<Thinking>,
    /// Continue the prompt as it is, without the chat template
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub raw: bool,
    /// System message
    #[arg(long, value_name = "TEXT")]
    pub system: Option<String>,
    /// Tools that the model may call: a JSON list in OpenAI's form; a call is printed as one line of JSON
    #[arg(long, value_name = "FILE")]
    pub tools: Option<PathBuf>,
    /// End the reply before this text; may be given up to 16 times
    #[arg(long, value_name = "TEXT")]
    pub stop: Vec<String>,
    /// Prompt tokens read in one pass; changes speed and memory, never the answer
    #[arg(long, value_name = "N", default_value_t = ss_generate::DEFAULT_PREFILL_PASS,
          value_parser = clap::value_parser!(u32).range(1..=MOST_ROWS))]
    pub prefill_pass: u32,
}

/// Sampling flags; what is not given comes from the model's `generation_config.json`, then from the defaults of its
/// kind.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Sampling")]
pub struct SamplingArgs {
    /// 0 is greedy; higher is more varied
    #[arg(long, visible_alias = "temp", value_name = "T", value_parser = values::temperature)]
    pub temperature: Option<f32>,
    /// Draw from the K likeliest tokens; 0 is off
    #[arg(long, value_name = "K", value_parser = values::top_k)]
    pub top_k: Option<u32>,
    /// Draw from the likeliest tokens that hold this share together
    #[arg(long, value_name = "P", value_parser = values::top_p)]
    pub top_p: Option<f32>,
    /// Drop tokens less likely than this share of the likeliest
    #[arg(long, value_name = "P", value_parser = values::min_p)]
    pub min_p: Option<f32>,
    /// Subtracted from tokens that are in the reply already
    #[arg(long, value_name = "X", value_parser = values::penalty)]
    pub presence_penalty: Option<f32>,
    /// Subtracted for each time a token is in the reply
    #[arg(long, value_name = "X", value_parser = values::penalty)]
    pub frequency_penalty: Option<f32>,
    /// Weakens tokens seen in prompt or reply; 1 is off
    #[arg(long, visible_alias = "repeat-penalty", value_name = "R", value_parser = values::repetition)]
    pub repetition_penalty: Option<f32>,
    /// Added to the logit of a token; may be given many times
    #[arg(long, value_name = "ID=BIAS", value_parser = values::logit_bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Same seed, prompt and settings: same reply; without it a fresh one
    #[arg(long, value_name = "N", value_parser = values::whole)]
    pub seed: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_are_consistent() {
        Cli::definition().debug_assert();
    }

    #[test]
    fn every_flag_is_documented() {
        for command in Cli::definition().get_subcommands() {
            for arg in command.get_arguments() {
                assert!(arg.get_help().is_some(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }
}
