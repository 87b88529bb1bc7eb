//! Owns: a kernel's Metal text as a program of this machine: compiled with `tests/msl` by clang, and run in a process of its
//! own, under AddressSanitizer and UndefinedBehaviorSanitizer.
//! Refuses: arguments at a slot without a buffer, and pointers whose constness is not that of the binding.
//! Invariants: the text is the one that Metal's compiler is given, but for arrays of threadgroup memory, which become arrays
//! that the harness watches; each argument has the buffer of its slot as wgpu's rules say, not as the text's author thought.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::msl::Said;

/// The folder of the harness.
const HARNESS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/msl");

/// Metal's language is C++14. Nothing is assumed to add in another order, and variables that nobody set hold a pattern.
const FLAGS: &[&str] = &[
    "-std=c++14",
    "-O1",
    "-g1",
    "-Wall",
    "-Werror",
    "-Wno-unknown-attributes",
    "-Wno-unused-function",
    "-Wno-unused-variable",
    "-ffp-contract=off",
    "-fno-omit-frame-pointer",
    "-ftrivial-auto-var-init=pattern",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
];

/// Most processor time of a run: the longest here takes a tenth of it.
const SECONDS: u32 = 60;

/// What a slot of a kernel holds.
#[derive(Clone, Debug)]
pub(super) enum Argument {
    /// A buffer, and whether the layout lets it be written.
    Buffer { bytes: Vec<u8>, written: bool },
    /// An array of buffers, which are only read.
    Array(Vec<Vec<u8>>),
}

impl Argument {
    /// A buffer that is only read.
    pub(super) fn read(bytes: &[u8]) -> Self {
        Argument::Buffer { bytes: bytes.to_vec(), written: false }
    }

    /// A buffer that is written.
    pub(super) fn written(bytes: &[u8]) -> Self {
        Argument::Buffer { bytes: bytes.to_vec(), written: true }
    }

    fn is_written(&self) -> bool {
        matches!(self, Argument::Buffer { written: true, .. })
    }

    fn buffers(&self) -> Vec<&[u8]> {
        match self {
            Argument::Buffer { bytes, .. } => vec![bytes],
            Argument::Array(all) => all.iter().map(|bytes| &bytes[..]).collect(),
        }
    }
}

/// A kernel, ready to run.
pub(super) struct Program {
    parameters: Vec<Parameter>,
    threads: u32,
    running: Mutex<Child>,
    /// Holds the program's file as long as it runs.
    _folder: TempDir,
}

/// A parameter of a kernel as its text declares it.
#[derive(Debug)]
struct Parameter {
    kind: String,
    attribute: String,
}

impl Parameter {
    /// The buffer that it names.
    fn slot(&self) -> Option<usize> {
        self.attribute.strip_prefix("buffer(")?.strip_suffix(')')?.trim().parse().ok()
    }

    /// What the harness passes for it.
    fn passed(&self) -> Result<String, String> {
        if let Some(slot) = self.slot() {
            let kind = &self.kind;
            return Ok(match kind.strip_suffix('&') {
                Some(kind) => format!("*({kind} *)buffers[{slot}]"),
                None => format!("({kind})buffers[{slot}]"),
            });
        }
        let place = match &*self.attribute {
            "threadgroup_position_in_grid" => {
                "metal::uint3(place.threadgroup[0], place.threadgroup[1], place.threadgroup[2])"
            }
            "thread_index_in_threadgroup" => "place.index",
            "thread_index_in_simdgroup" => "place.index % harness::LANES",
            "simdgroup_index_in_threadgroup" => "place.index / harness::LANES",
            other => return Err(format!("the harness does not know `{other}`")),
        };
        Ok(place.to_owned())
    }
}

/// Runs a tool to its end on some input, and gives its output or what it complained of.
fn told(command: &mut Command, input: &str) -> Result<String, String> {
    let spawned = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut child = spawned.unwrap_or_else(|error| {
        panic!("these tests need clang ({error}): run `scripts/install-clang.sh`");
    });
    // A tool that ends before it has read everything says why.
    let _ = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
    let output = child.wait_with_output().unwrap();
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

fn clang() -> Command {
    Command::new("clang++")
}

/// The runner, compiled once.
fn runner() -> &'static [u8] {
    static RUNNER: OnceLock<Vec<u8>> = OnceLock::new();
    RUNNER.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let object = folder.path().join("runner.o");
        let source = Path::new(HARNESS).join("runner.cpp");
        told(clang().args(FLAGS).arg("-c").arg(source).arg("-o").arg(&object), "")
            .unwrap_or_else(|why| panic!("the harness does not compile:\n{why}"));
        std::fs::read(object).unwrap()
    })
}

/// The parameters of a kernel, its macros replaced.
fn parameters(text: &str, entry: &str) -> Result<Vec<Parameter>, String> {
    let own: String =
        text.lines().filter(|line| !line.starts_with("#include")).map(|line| format!("{line}\n")).collect();
    let plain = told(clang().args(["-E", "-P", "-x", "c++", "-"]), &own)?;
    let head = format!("kernel void {entry}(");
    let (_, rest) = plain.split_once(&head).ok_or_else(|| format!("no `{head}`"))?;
    let (list, _) = rest.split_once('{').ok_or("a kernel without a body")?;
    let mut all = Vec::new();
    for declared in list.split("]]").filter(|declared| declared.contains("[[")) {
        let (declared, attribute) = declared.split_once("[[").unwrap_or_default();
        let declared = declared.trim_start_matches([',', ' ', '\n']).trim();
        let name = declared.rfind(|c: char| !c.is_alphanumeric() && c != '_').map_or(0, |at| at + 1);
        let (kind, attribute) = (declared[..name].trim().to_owned(), attribute.trim().to_owned());
        all.push(Parameter { kind, attribute });
    }
    Ok(all)
}

/// Threadgroup memory as the harness watches it: arrays in a kernel's body, pointers among parameters.
fn watched(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for line in text.lines() {
        let (code, comment) = line.split_once("//").map_or((line, ""), |(code, comment)| (code, comment));
        let mut rest = code;
        while let Some((before, after)) = rest.split_once("threadgroup ") {
            let (kind, after) = after.split_once(' ').unwrap_or((after, ""));
            out.push_str(before);
            if let Some(name) = after.strip_prefix('*') {
                out.push_str(&format!("harness::Pointer<{kind}> "));
                rest = name;
                continue;
            }
            let (name, size) = after.split_once('[').unwrap_or_else(|| panic!("neither array nor pointer: {line}"));
            let (size, after) = size.split_once("];").unwrap_or_else(|| panic!("not a whole declaration: {line}"));
            out.push_str(&format!("static harness::Shared<{kind}, {size}> {name}(\"{name}\");"));
            rest = after;
        }
        out.push_str(rest);
        if !comment.is_empty() {
            out.push_str("//");
        }
        out.push_str(comment);
        out.push('\n');
    }
    out
}

/// The source of a kernel's program.
fn program(said: &Said, parameters: &[Parameter]) -> Result<String, String> {
    let passed = parameters.iter().map(Parameter::passed).collect::<Result<Vec<_>, _>>()?;
    Ok(format!(
        "{}\nvoid harness::run_thread(void **buffers, const harness::Place &place) {{\n    {}({});\n}}\n",
        watched(&said.text),
        said.entry,
        passed.join(",\n        ")
    ))
}

impl Program {
    /// Compiles a kernel.
    ///
    /// # Errors
    /// What the compiler, or the harness, has against it.
    pub(super) fn new(said: &Said) -> Result<Self, String> {
        Self::limited(said, SECONDS)
    }

    /// The same, a run taking at most so many seconds of a processor.
    ///
    /// # Errors
    /// What the compiler, or the harness, has against it.
    pub(super) fn limited(said: &Said, seconds: u32) -> Result<Self, String> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let at = |name: &str| folder.path().join(name);
        let parameters = parameters(&said.text, said.entry)?;
        std::fs::write(at("runner.o"), runner()).map_err(|error| error.to_string())?;
        std::fs::write(at("kernel.cpp"), program(said, &parameters)?).map_err(|error| error.to_string())?;
        let mut compile = clang();
        compile.args(FLAGS).arg("-I").arg(HARNESS).args([at("kernel.cpp"), at("runner.o")]);
        told(compile.arg("-o").arg(at("kernel")), "")?;
        let mut run = Command::new(at("kernel"));
        run.env("ASAN_OPTIONS", "detect_leaks=0").env("UBSAN_OPTIONS", "print_stacktrace=1");
        run.env("HARNESS_SECONDS", seconds.to_string());
        let running = run.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let running = Mutex::new(running.map_err(|error| error.to_string())?);
        Ok(Program { parameters, threads: said.threads, running, _folder: folder })
    }

    /// Runs a grid of threadgroups and gives the contents of what is written.
    ///
    /// # Errors
    /// What the harness or a sanitizer has against it.
    pub(super) fn run(&self, grid: [u32; 3], arguments: &[Argument]) -> Result<Vec<Vec<u8>>, String> {
        self.check(arguments)?;
        let mut request: Vec<u32> = grid.to_vec();
        request.extend([self.threads, arguments.len() as u32]);
        let mut message: Vec<u8> = bytemuck::cast_slice(&request).to_vec();
        for argument in arguments {
            let (buffers, array) = (argument.buffers(), matches!(argument, Argument::Array(_)));
            let head = [buffers.len() as u32, u32::from(array), u32::from(argument.is_written())];
            message.extend_from_slice(bytemuck::cast_slice(&head));
            for buffer in buffers {
                message.extend((buffer.len() as u32).to_le_bytes());
                message.extend_from_slice(buffer);
            }
        }
        self.answered(&message, arguments)
    }

    fn answered(&self, message: &[u8], arguments: &[Argument]) -> Result<Vec<Vec<u8>>, String> {
        let mut lock = self.running.lock();
        let running = &mut *lock;
        let (Some(stdin), Some(stdout)) = (&mut running.stdin, &mut running.stdout) else {
            return Err("the program has ended".to_owned());
        };
        let written = arguments.iter().filter(|argument| argument.is_written());
        let mut answers: Vec<Vec<u8>> = written.map(|argument| vec![0; argument.buffers()[0].len()]).collect();
        let sent = stdin.write_all(message).and_then(|()| stdin.flush());
        if sent.and_then(|()| answers.iter_mut().try_for_each(|answer| stdout.read_exact(answer))).is_ok() {
            return Ok(answers);
        }
        let mut why = String::new();
        running.stdin.take();
        if let Some(stderr) = &mut running.stderr {
            let _ = stderr.read_to_string(&mut why);
        }
        Err(if why.is_empty() { "the program ended without a word".to_owned() } else { why })
    }

    fn check(&self, arguments: &[Argument]) -> Result<(), String> {
        for parameter in &self.parameters {
            let Some(slot) = parameter.slot() else { continue };
            let Some(argument) = arguments.get(slot) else {
                return Err(format!("`{}` is at slot {slot} of {}", parameter.kind, arguments.len()));
            };
            let pointer = parameter.kind.contains('*') && !matches!(argument, Argument::Array(_));
            if pointer && parameter.kind.contains("const ") == argument.is_written() {
                return Err(format!("`{}` at slot {slot}, whose binding says otherwise", parameter.kind));
            }
        }
        Ok(())
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let running = self.running.get_mut();
        // The end of its input is the end of the program; one that failed has ended before.
        running.stdin.take();
        let _ = running.wait();
    }
}
