//! Owns: the `SS_*` variables: each flag has one of the same name (engine.md section 9).
//! Refuses: variables for what cannot be undone.
//! Invariants: a variable that is set to nothing counts as not set.

use clap::Command;

/// Flags for what cannot be undone: they are typed, never set.
pub const TYPED: [&str; 1] = ["reclaim"];

/// Gives each flag of each command its variable.
pub fn apply(command: Command) -> Command {
    command.mut_subcommands(|sub| {
        sub.mut_args(|arg| match arg.get_long().filter(|long| !TYPED.contains(long)).map(name) {
            Some(name) if std::env::var_os(&name).is_none_or(|value| !value.is_empty()) => {
                arg.env(name).hide_env_values(true)
            }
            _ => arg,
        })
    })
}

/// The variable of a flag: `SS_MAX_TOKENS` for `max-tokens`.
pub fn name(long: &str) -> String {
    format!("SS_{}", long.replace('-', "_").to_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Cli;

    #[test]
    fn every_flag_has_the_variable_of_its_name() {
        let command = apply(Cli::definition());
        let flags = command.get_subcommands().flat_map(Command::get_arguments);
        for (long, arg) in flags.filter_map(|arg| Some((arg.get_long()?, arg))) {
            let expected = format!("SS_{}", long.replace('-', "_").to_uppercase());
            let typed = long == "reclaim";
            assert_eq!(arg.get_env().and_then(|name| name.to_str()), Some(expected.as_str()).filter(|_| !typed));
        }
        command.debug_assert();
    }
}
