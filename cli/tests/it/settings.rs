//! Owns: `SS_*` variables and `config.toml`, and which of them wins.

use crate::Place;

/// Tokens of the reply to a question, under a file and variables.
fn tokens(file: &str, variables: &[(&str, &str)], flags: &[&str]) -> u64 {
    let place = Place::new();
    place.write("home/config.toml", file);
    let stats = place.path("stats.json");
    let line = [&["run", "--temperature", "0"], flags, &["How do I make tea?"]].concat();
    let run = place.run(line).env("SS_STATS_JSON", stats.to_str().unwrap());
    variables.iter().fold(run, |run, (name, value)| run.env(name, value)).answer();
    let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(stats).unwrap()).unwrap();
    report["output_tokens"].as_u64().unwrap()
}

#[test]
fn a_flag_wins_over_its_variable_and_that_over_the_file() {
    assert_eq!(tokens("max-tokens = 3", &[], &[]), 3);
    assert_eq!(tokens("max_tokens = 3", &[("SS_MAX_TOKENS", "4")], &[]), 4);
    assert_eq!(tokens("max-tokens = 3", &[("SS_MAX_TOKENS", "4")], &["-n", "5"]), 5);
}

#[test]
fn a_variable_set_to_nothing_is_not_set() {
    assert_eq!(
        tokens("", &[("SS_MAX_TOKENS", ""), ("SS_MODEL", ""), ("SS_SLOTS", ""), ("SS_THINK", "")], &["-n", "2"]),
        2
    );
}

#[test]
fn settings_that_exclude_each_other_are_settled_by_the_nearer_one() {
    let place = Place::new();
    place.write("home/config.toml", "slots = \"all\"\nsystem = \"Be brief.\"\n");
    let said = place.run(["run", "--raw", "--experts-per-layer", "5", "-n", "1", "hi"]).said();
    assert_eq!(said.code, Some(0), "{}", said.stderr);
    assert!(said.stderr.contains("40 slots for 512 experts"), "{}", said.stderr);
    let text = place.run(["run", "hi"]).env("SS_SLOTS", "all").env("SS_EXPERTS_PER_LAYER", "5").refused(2);
    assert!(text.contains("`--slots` and `--experts-per-layer` exclude each other"), "{text}");
}

#[test]
fn a_wrong_variable_is_named() {
    let place = Place::new();
    let text = place.run(["run", "hi"]).env("SS_TEMPERATURE", "hot").refused(2);
    assert!(text.starts_with("`SS_TEMPERATURE`: invalid value 'hot'"), "{text}");
    let text = place.run(["run", "hi"]).env("SS_VERBOSE", "maybe").refused(2);
    assert!(text.starts_with("`SS_VERBOSE`: "), "{text}");
}

#[test]
fn a_wrong_file_is_named_with_the_setting() {
    for (file, expected) in [
        (&b"frob = 1"[..], "`frob`: this is no setting"),
        (b"temperature = \"hot\"", "`temperature`: invalid value 'hot'"),
        (b"a = 1\nx =", "line 2 is not TOML"),
        (b"\xff", "is not UTF-8"),
    ] {
        let place = Place::new();
        let path = place.write("home/config.toml", file);
        let text = place.run(["run", "hi"]).refused(2);
        assert!(text.contains(&format!("`{}`", path.display())) && text.contains(expected), "{text}");
    }
    let place = Place::new();
    std::fs::create_dir(place.home().join("config.toml")).unwrap();
    assert!(place.run(["run", "hi"]).refused(2).contains("config.toml` cannot be read"));
}
