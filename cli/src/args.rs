//! Owns: every flag, documented once.
//! Refuses: values out of range.
//! Invariants: help, variables, `config.toml` and completions all follow from the list here (engine.md section 9).

use std::path::PathBuf;

use clap::builder::{BoolishValueParser, NonEmptyStringValueParser};
use clap::{Args, CommandFactory, Parser, Subcommand, ValueEnum};
use ss_backend::Arithmetic;
use ss_checkpoint::IoMode;
use ss_replay::{MOST_RECORD_BYTES, Policy};
use ss_server::Thinking;
use ss_stream::{Lane, LaneCounts, PoolSize, RamSize};
use ss_synth::{NgramRows, Source};

use crate::values;

/// Most threads of the reference backend: more than any machine it is for has processors.
const MOST_THREADS: i64 = 1024;
/// Most rows of a pass (engine.md, words).
const MOST_ROWS: i64 = 4096;
/// Most tokens of a read group: the window of the released model.
const MOST_GROUP: i64 = 262_144;
/// Most layers of a made-up model: what the engine opens.
const MOST_LAYERS: i64 = 256;
/// Most rows of a made-up n-gram table: a hundred times the released one's, which still can be numbered.
const MOST_NGRAM_ROWS: u64 = 32_000_000_000;
/// Most requests or connections: files of a process are bounded, too.
const MOST_WAITING: i64 = 65_536;
/// Most tokens of a made-up trace.
const MOST_TOKENS: i64 = 100_000;
/// Microseconds of a layer of the released model where memory gives 300 GB/s: its weights and ten experts are 89 MB.
const LAYER_US: f64 = 300.0;
/// Microseconds that its records of 2.76 MB take at 17.3 GB/s.
pub const RECORD_US: f64 = 160.0;
/// Microseconds to the first byte of such a disk.
const LATENCY_US: f64 = 80.0;
/// Megabytes of n-gram rows kept unless told otherwise.
const ROW_CACHE_MB: u64 = ss_stream::ROW_CACHE_BYTES / 1_000_000;

/// Lanes unless told otherwise; they are set as a `u16`.
fn lanes(lane: Lane) -> u16 {
    LaneCounts::default().of(lane) as u16
}

const AFTER: &str = "\
Every flag but --reclaim has a variable, as SS_MAX_TOKENS for --max-tokens, and a setting in config.toml in $SS_HOME, as \
max-tokens = 500. A flag wins over its variable, and that over the file.

Exit codes: 0 answered, 2 wrong usage or a bad model, 3 no memory, 4 the device failed, 130 Ctrl-C.";

const EXAMPLES: &str = "\
Examples:
  ss run \"How do I make tea?\"
  ss run --think=low \"What is the capital of Japan?\" 2> thoughts.txt
  cat notes.txt | ss run --model ~/models/flash-next \"Sum this up\"
  ss run --raw --temperature 0 --max-tokens 50 \"Once upon a time\"";

const SERVE_EXAMPLES: &str = "\
Examples:
  ss serve                                       the small model, at http://127.0.0.1:11434
  ss serve --model ~/models/flash-next --alias claude-haiku
  ss serve --host 0.0.0.0 --api-key \"$KEY\"      for other machines

OpenAI's clients take http://127.0.0.1:11434/v1, others http://127.0.0.1:11434.
A browser shows a page there. The first SIGINT or SIGTERM lets what runs end, for
--drain-seconds; the second ends it at once. Either way the exit code is 0.";

const REPORT_EXAMPLES: &str = "\
Examples:
  ss report                        everything, in ss-report.json: a few minutes on a GPU
  ss report --quick -o quick.json  a minute";

const PACK_EXAMPLES: &str = "\
Examples:
  ss pack ~/models/flash-next               write what is missing; a run that was stopped is gone on from
  ss pack --verify ~/models/flash-next      read all of it again
  ss pack --repair ~/models/flash-next      the same, then pack again what is damaged
  ss pack --reclaim ~/models/flash-next     then give the space of the originals back";

const BENCH_EXAMPLES: &str = "\
Examples:
  ss bench                                       the small model, all experts in memory
  ss bench --slots floor,50%,all -p 0 -n 256     replies at three sizes of the pool
  ss bench --adapter llvmpipe -p 64 -n 8 -r 1    software Vulkan, which is slow
  ss bench --json > bench.json                   the figures as JSON; the table is shown meanwhile";

const SYNTH_EXAMPLES: &str = "\
Examples:
  ss synth made --layers 10                      the first ten layers of the released model's geometry, 18 GB
  ss synth made --geometry nano-like             a small one, 20 MB
  ss synth made --geometry my/config.json        any geometry that the engine supports
  ss bench --model made                          measure it";

const REPLAY_EXAMPLES: &str = "\
Examples:
  ss run --trace-experts trace \"Tell me a story\"  write a trace
  ss replay trace                                 hit rates of five policies in four pools
  ss replay trace --slots floor,512 --policy clock,belady
  ss replay trace --lookahead                     what reading ahead would gain in four pools
  ss replay trace --lookahead --layer-us 83 --disk-gbps 3.7
  ss replay --synthetic released                  a made-up trace of the released model's size";

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
    /// Answer requests over HTTP, in the dialects of OpenAI, Anthropic and Ollama
    #[command(after_help = SERVE_EXAMPLES)]
    Serve(Box<ServeArgs>),
    /// Describe a model directory: geometry, groups of bytes, what is missing
    Inspect(InspectArgs),
    /// Lay experts and n-gram rows out for fast reading, in files beside the weights
    #[command(after_help = PACK_EXAMPLES)]
    Pack(PackArgs),
    /// List what can compute here: the processor, and each adapter of a GPU driver
    Devices(DevicesArgs),
    /// Prove a device: parity, row invariance and repeatability of every operation
    Selftest(SelftestArgs),
    /// Measure how fast a model reads prompts and writes replies here
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Write a checkpoint of any geometry with made-up weights, to measure with
    #[command(after_help = SYNTH_EXAMPLES)]
    Synth(SynthArgs),
    /// Tell what pools of other sizes, under other policies, would have found in a trace
    #[command(after_help = REPLAY_EXAMPLES)]
    Replay(ReplayArgs),
    /// Gather in one file what this machine is, what its devices say, whether they compute rightly and how fast; nothing private
    #[command(after_help = REPORT_EXAMPLES)]
    Report(ReportArgs),
    /// Print shell completions
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
}

/// Flags of `ss report`.
#[derive(Debug, Args)]
pub struct ReportArgs {
    /// Where to write it; nothing is written over
    #[arg(short, long, value_name = "FILE", default_value = "ss-report.json")]
    pub out: PathBuf,
    /// Only the quick form of the self-test, and a short bench
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub quick: bool,
    /// The GPU adapter with NAME in its name; without it what `--backend auto` takes
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub adapter: Option<String>,
    /// Model directory, or the name of one in the `models` folder of `$SS_HOME`; without it the small model of the repository
    #[arg(short, long, value_name = "DIR|NAME")]
    pub model: Option<PathBuf>,
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

/// Flags of `ss pack`.
#[derive(Debug, Args)]
pub struct PackArgs {
    /// Model directory, or the name of one in the `models` folder of `$SS_HOME`
    pub dir: PathBuf,
    /// Write nothing: read the packs again, against their checksums and against the originals
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub verify: bool,
    /// Read the packs again as --verify does, and pack again from the first damaged record on
    #[arg(long, conflicts_with = "verify", value_parser = BoolishValueParser::new())]
    pub repair: bool,
    /// Afterwards verify everything, then remove packed weights from the .safetensors files; it cannot be undone
    #[arg(long, conflicts_with_all = ["verify", "repair"], value_parser = BoolishValueParser::new())]
    pub reclaim: bool,
    /// Leave n-gram rows where they are
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub experts_only: bool,
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

/// Flags of `ss synth`.
#[derive(Debug, Args)]
pub struct SynthArgs {
    /// Directory to write; it must be new or empty
    pub dir: PathBuf,
    /// Whose geometry: released, nano-like, or a config.json or the directory that holds one
    #[arg(long, value_name = "GEOMETRY", default_value = "released", value_parser = values::geometry)]
    pub geometry: Source,
    /// Main layers, in the geometry's own pattern; without it as many as the geometry has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=MOST_LAYERS))]
    pub layers: Option<u32>,
    /// n-gram rows: sparse leaves holes, which read as zeros and take no disk; full writes random ones
    #[arg(long, value_name = "HOW", default_value = "sparse", value_parser = values::ngrams())]
    pub ngram: NgramRows,
    /// Rows of each n-gram table, about; without it as many as the geometry has
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_NGRAM_ROWS))]
    pub ngram_rows: Option<u64>,
    /// Write a draft head beside it
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub draft_head: bool,
    /// Same seed and flags: same bytes
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = values::whole)]
    pub seed: u64,
    /// Threads that write; 0 takes one for each core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=MOST_THREADS))]
    pub threads: u16,
    /// Print what was written as JSON
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub json: bool,
}

/// Flags of `ss replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Trace that `ss run --trace-experts FILE` wrote
    pub file: Option<PathBuf>,
    /// Make a trace up instead, of a model of this geometry: released, nano-like, or a config.json or the directory that
    /// holds one; its router is as skewed as a trained one's
    #[arg(long, value_name = "GEOMETRY", value_parser = values::geometry)]
    pub synthetic: Option<Source>,
    /// Tokens of the made-up trace
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..=MOST_TOKENS))]
    pub tokens: u32,
    /// Same seed: same made-up trace
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = values::whole)]
    pub seed: u64,
    /// Sizes of the slot pool, as for `ss run`
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', default_value = "10%,25%,50%,75%")]
    pub slots: Vec<PoolSize>,
    /// Policies: clock, which is the engine's, lru, lfu, popularity, belady, which knows the future; without it all, and clock
    /// with `--lookahead`
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    pub policy: Vec<Policy>,
    /// Bytes of an expert; without it those that the trace names
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=MOST_RECORD_BYTES))]
    pub record_bytes: Option<u64>,
    /// Print the figures as JSON
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub json: bool,
    /// Lookahead.
    #[command(flatten)]
    pub ahead: AheadArgs,
}

/// Flags that say how lookahead is replayed.
#[derive(Debug, Args)]
#[command(next_help_heading = "Lookahead")]
pub struct AheadArgs {
    /// Replay each pool without and with reading ahead on the forecasts of the trace: what is waited for, what is read in
    /// vain, and how long it takes by the times below; a record that is still being read when it is chosen counts as waited
    /// for, where `ss run` calls it a hit
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub lookahead: bool,
    /// How far above a layer's last choice an expert must be expected to be read early, in logits; without it 0.062 with
    /// `--lookahead-always`, else -1, since what is left out is learned then
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = values::margin)]
    pub lookahead_margin: Option<f32>,
    /// Read early whatever is expected, whether its read is worth its time or not, as `ss run --lookahead-always` does
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub lookahead_always: bool,
    /// Microseconds from the experts of a layer being there to the choice of the next
    #[arg(long, value_name = "US", default_value_t = LAYER_US, value_parser = values::microseconds)]
    pub layer_us: f64,
    /// Microseconds that the disk takes to send an expert; without it those that `--disk-gbps` comes to, or 160
    #[arg(long, value_name = "US", value_parser = values::microseconds)]
    pub record_us: Option<f64>,
    /// GB/s of the disk, instead of `--record-us`
    #[arg(long, value_name = "GB/S", value_parser = values::gbps)]
    pub disk_gbps: Option<f64>,
    /// Microseconds to the first byte of an expert
    #[arg(long, visible_alias = "latency-us", value_name = "US", default_value_t = LATENCY_US, value_parser = values::latency)]
    pub disk_latency_us: f64,
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
    /// Write which experts each token chose, and which were forecast, to FILE, for `ss replay`
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub trace_experts: Option<PathBuf>,
    /// Do not read the experts that were used most before, and do not keep which they are
    #[arg(long, help_heading = "Model and device", value_parser = BoolishValueParser::new())]
    pub no_hot_set: bool,
    /// Show on what it ran and where the time went
    #[arg(short, long, help_heading = "Output", value_parser = BoolishValueParser::new())]
    pub verbose: bool,
}

/// Flags of `ss serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// Who may ask, and where.
    #[command(flatten)]
    pub listen: ListenArgs,
    /// Limits.
    #[command(flatten)]
    pub limits: LimitArgs,
    /// Logs.
    #[command(flatten)]
    pub log: LogArgs,
    /// Model and device.
    #[command(flatten)]
    pub load: LoadArgs,
    /// The slot pool.
    #[command(flatten)]
    pub pool: PoolArgs,
    /// Prompt tokens read in one pass; changes speed and memory, never the answer
    #[arg(long, value_name = "N", default_value_t = ss_generate::DEFAULT_PREFILL_PASS,
          value_parser = clap::value_parser!(u32).range(1..=MOST_ROWS), help_heading = "Model and device")]
    pub prefill_pass: u32,
    /// Do not read the experts that were used most before, and do not keep which they are
    #[arg(long, help_heading = "Model and device", value_parser = BoolishValueParser::new())]
    pub no_hot_set: bool,
    /// Say what FILE says instead of running the model, to test clients with fixed replies
    #[arg(long, value_name = "FILE", hide = true)]
    pub script: Option<PathBuf>,
}

/// Flags that say where a server listens and who may ask.
#[derive(Debug, Args)]
#[command(next_help_heading = "Listening")]
pub struct ListenArgs {
    /// Address to listen on; another than the default lets other machines ask, and answers to any name
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", value_parser = NonEmptyStringValueParser::new())]
    pub host: String,
    /// Port to listen on; 0 takes a free one
    #[arg(long, value_name = "PORT", default_value_t = 11434)]
    pub port: u16,
    /// Key that clients must send; without it none is asked for, and any is accepted
    #[arg(long, value_name = "KEY", hide_env_values = true, value_parser = values::key)]
    pub api_key: Option<String>,
    /// Let pages of these origins ask, as https://chat.example; may be given many times. Pages of this machine always may
    #[arg(long, value_name = "ORIGIN,...", value_delimiter = ',', value_parser = values::origin)]
    pub cors_origin: Vec<String>,
    /// Name that the model goes by; without it qwen3.8-flash-next:4bit for the released model, else the directory's
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub name: Option<String>,
    /// More names that the model answers to; may be given many times
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = NonEmptyStringValueParser::new())]
    pub alias: Vec<String>,
}

/// Flags that bound what a server takes on.
#[derive(Debug, Args)]
#[command(next_help_heading = "Limits")]
pub struct LimitArgs {
    /// Requests that may wait for the engine beside the one that runs; more are told to come back
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=MOST_WAITING))]
    pub queue: u32,
    /// Connections at a time; more are told to come back
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = clap::value_parser!(u32).range(1..=MOST_WAITING))]
    pub connections: u32,
    /// Most seconds from a request to its first token; 0 is no limit
    #[arg(long, value_name = "SECONDS", default_value_t = 1800)]
    pub max_prefill_wait: u32,
    /// Seconds that replies may go on after the first signal to end
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    pub drain_seconds: u32,
}

/// Flags of logs.
#[derive(Debug, Args)]
#[command(next_help_heading = "Logs")]
pub struct LogArgs {
    /// Write the log to FILE, too, adding to what is there
    #[arg(long, value_name = "FILE")]
    pub log_file: Option<PathBuf>,
    /// How lines are written
    #[arg(long, value_enum, default_value = "text", value_name = "FORM")]
    pub log_format: LogFormat,
    /// How much is written: a line a request, each answer of every path, or nothing but trouble
    #[arg(long, value_enum, default_value = "info", value_name = "LEVEL")]
    pub log_level: LogLevel,
    /// Write prompts, too; without it none is ever written
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub log_prompts: bool,
}

/// How lines of the log are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    Warn,
    Info,
    Debug,
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
    /// Measure prompts of 512, 2048 and 8192 tokens, and replies of 128 tokens behind 0, 4096 and 32768
    #[arg(long, conflicts_with_all = ["prompt_tokens", "reply_tokens", "depth"], help_heading = "Tests",
          value_parser = BoolishValueParser::new())]
    pub full: bool,
    /// Runs of each test, after one that is not counted
    #[arg(short, long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000),
          help_heading = "Tests")]
    pub repetitions: u32,
    /// Prompt tokens read in one pass
    #[arg(long, value_name = "N", default_value_t = ss_generate::DEFAULT_PREFILL_PASS,
          value_parser = clap::value_parser!(u32).range(1..=MOST_ROWS), help_heading = "Tests")]
    pub prefill_pass: u32,
    /// Read records into the memory of `--ram-cache-gb` before the first test
    #[arg(long, help_heading = "Tests", value_parser = BoolishValueParser::new())]
    pub preload: bool,
    /// Slow what comes from that memory down to the disk of `--disk-gbps` and `--disk-latency-us`, too: memory then stands in
    /// for a disk that is faster than the one at hand
    #[arg(long, help_heading = "Tests", value_parser = BoolishValueParser::new())]
    pub throttle_ram: bool,
    /// Show where the time went: device busy, disk, encoding, other work of the host, idle; timing takes a little of it
    #[arg(long, help_heading = "Output", value_parser = BoolishValueParser::new())]
    pub profile: bool,
    /// Show the device's time by kernel, too, where the adapter can tell. A mark is made behind every dispatch, which slows the
    /// rows themselves
    #[arg(long, help_heading = "Output", value_parser = BoolishValueParser::new())]
    pub profile_kernels: bool,
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
    /// Read the original weights even where `ss pack` has laid them out
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub no_pack: bool,
    /// Look at the checksum of every packed expert whenever it is read, which is slower; without it only at its first use, and
    /// only where `ss pack --reclaim` left no original
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub check_records: bool,
    /// Most prompt tokens that share one read of each layer's experts where they come from disk; as many as fit a sixteenth
    /// of memory, and none where that is one pass or 0
    #[arg(long, value_name = "TOKENS", default_value_t = ss_generate::DEFAULT_READ_GROUP,
          value_parser = clap::value_parser!(u32).range(..=MOST_GROUP))]
    pub read_group: u32,
    /// Read no expert before its layer has chosen it
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub no_lookahead: bool,
    /// Read early whatever is expected, even where its layer will have chosen before it is there and probably something else;
    /// without it such reads are left out, by how long reads take and how often forecasts came true
    #[arg(long, value_parser = BoolishValueParser::new())]
    pub lookahead_always: bool,
    /// How far above a layer's last choice an expert must be expected to be read early, in logits; without it 0.062 with
    /// `--lookahead-always`, else -1, since what is left out is learned then
    #[arg(long, value_name = "X", allow_negative_numbers = true, value_parser = values::margin)]
    pub lookahead_margin: Option<f32>,
    /// Megabytes of n-gram rows kept in memory
    #[arg(long, value_name = "MB", default_value_t = ROW_CACHE_MB, value_parser = values::whole)]
    pub ngram_cache_mb: u64,
    /// What stands between device and disk.
    #[command(flatten)]
    pub tiers: TierArgs,
}

/// Flags that say where records come from, but for the model directory.
#[derive(Debug, Args)]
#[command(next_help_heading = "Model and device")]
pub struct TierArgs {
    /// A copy of the model directory on another disk: each read goes to the copy that has fewer bytes to read
    #[arg(long, value_name = "DIR|NAME")]
    pub mirror: Option<PathBuf>,
    /// Gigabytes of host memory that keep expert records, besides the slots, or all; of use where the GPU has memory of
    /// its own
    #[arg(long, value_name = "GB|all", default_value = "0")]
    pub ram_cache_gb: RamSize,
    /// Read as slowly as a disk of so many GB/s, to see what another machine would do
    #[arg(long, value_name = "GB/S", value_parser = values::gbps)]
    pub disk_gbps: Option<f64>,
    /// Wait as long for the first byte of each read as for a disk of so many microseconds
    #[arg(long, value_name = "US", value_parser = values::latency)]
    pub disk_latency_us: Option<f64>,
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
    /// Read prompts with the GPU's matrix units, in the fast profile; auto does where a self-test with them passes, and never
    /// on an adapter that is software
    #[arg(long, value_enum, default_value = "auto", value_name = "WHEN")]
    pub matrix_units: MatrixUnits,
    /// Which kernels a GPU runs: those in its own language where there are some (msl, on Metal), or the WGSL alone
    #[arg(long, value_enum, default_value = "auto", value_name = "LANGUAGE")]
    pub kernels: KernelLanguage,
    /// How records get into a GPU's slots: auto writes them where they lie if the GPU shows its memory to the processor, staged
    /// always copies them there
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    pub slot_writes: SlotWriting,
    /// Whether a little work now and then keeps the GPU from slowing down while a reply waits long for records: auto does so
    /// where the GPU has memory of its own
    #[arg(long, value_enum, default_value = "auto", value_name = "WHETHER")]
    pub keep_awake: KeepAwake,
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

/// Whether prompts are read with matrix units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum MatrixUnits {
    Auto,
    On,
    Off,
}

/// Whether a GPU is kept awake while replies wait for records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KeepAwake {
    Auto,
    On,
    Off,
}

/// How records get into slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum SlotWriting {
    Auto,
    Staged,
}

/// In which language kernels run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum KernelLanguage {
    Auto,
    Wgsl,
    Msl,
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
