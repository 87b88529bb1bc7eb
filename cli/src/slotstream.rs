//! The same program under the name that no other tool has.
fn main() -> std::process::ExitCode {
    ss_cli::main()
}
