//! The `ss` binary; see the library beside it.
fn main() -> std::process::ExitCode {
    ss_cli::main()
}
