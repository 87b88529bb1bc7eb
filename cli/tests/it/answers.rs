//! Owns: what is answered, from where the prompt comes, and what shapes the reply.

use serde_json::json;

use crate::{Place, SLOTSTREAM, expected, ss, stats};

const TEA: &str = "How do I make tea?";
const TEA_ANSWER: &str = "Here is how to make tea:

1. Boil some water.
2. Put a tea bag in a cup.
3. Pour the hot water into the cup.
4. Wait for three minutes.
5. Take out the tea bag and enjoy your tea.
";
const JAPAN: &str = "What is the capital of Japan?";
const WEATHER: &str = r#"[{"type": "function", "function": {"name": "get_weather",
  "description": "Get the weather in a city.", "parameters": {"type": "object",
  "properties": {"city": {"type": "string", "description": "The name of the city"}}, "required": ["city"]}}}]"#;

#[test]
fn a_prompt_is_answered_from_argument_and_from_standard_input() {
    assert_eq!(ss(&["run", "--temperature", "0", TEA]).answer(), TEA_ANSWER);
    assert_eq!(ss(&["run", "--temperature", "0"]).stdin(TEA).answer(), TEA_ANSWER);
}

#[test]
fn standard_input_is_appended_to_the_argument() {
    let place = Place::new();
    let ids = |args: &[&str], stdin: &str| {
        let file = place.path("stats.json");
        let args = [args, &["--raw", "-n", "1", "--stats-json", file.to_str().unwrap()]].concat();
        place.run([&["run"], &args[..]].concat()).stdin(stdin).answer();
        let report: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        report["prompt_ids"].clone()
    };
    assert_eq!(ids(&["one"], "two\n"), ids(&["one\n\ntwo\n"], ""));
    assert_ne!(ids(&["one"], "two\n"), ids(&["one"], ""));
}

#[test]
fn the_program_answers_to_both_names() {
    let place = Place::new();
    let mut run = place.run(["run", "--temperature", "0", TEA]);
    let mut other = place.command(SLOTSTREAM);
    other.args(run.command.get_args());
    run.command = other;
    assert_eq!(run.answer(), TEA_ANSWER);
}

#[test]
fn raw_prompts_give_exactly_the_ids_of_the_float64_model_at_every_pool_size() {
    let place = Place::new();
    for case in expected() {
        let (prompt, length) = (case["prompt"].as_str().unwrap(), case["output_ids"].as_array().unwrap().len());
        let limit = if case["finish"] == "length" { length } else { length + 1 }.to_string();
        for slots in ["smallest", "floor", "50%", "all"] {
            let fixed = ["run", "--raw", "--temperature", "0", "--arithmetic", "exact", "--slots", slots, "-n", &limit];
            let report = stats(&place, &[&fixed[..], &["--", prompt]].concat());
            for field in ["prompt_ids", "output_ids", "finish"] {
                assert_eq!(report[field], case[field], "{} at {slots}: {field}", case["name"]);
            }
            assert_eq!(report["expert_evictions"].as_u64().unwrap() > 0, slots != "all", "{} at {slots}", case["name"]);
        }
    }
}

#[test]
fn standard_output_holds_the_answer_and_nothing_else() {
    for case in expected().iter().filter(|case| case["name"] == "plain-story") {
        let said = ss(&[
            "run",
            "--raw",
            "--arithmetic",
            "exact",
            "--temperature",
            "0",
            "-n",
            "96",
            "Once upon a time, there was",
        ])
        .said();
        assert_eq!(said.stdout, format!("{}\n", case["text"].as_str().unwrap()));
        assert!(said.stderr.contains("(cut off after 96 tokens)"), "{}", said.stderr);
    }
}

#[test]
fn the_size_of_a_prefill_pass_changes_nothing() {
    let place = Place::new();
    let with = |pass: &str| {
        let report = stats(
            &place,
            &["run", "--temperature", "0", "--prefill-pass", pass, "Tell me a story about a fox named Rusty."],
        );
        report["output_ids"].clone()
    };
    let whole = with("512");
    assert!(whole.as_array().unwrap().len() > 50);
    for pass in ["1", "7", "4096"] {
        assert_eq!(with(pass), whole, "passes of {pass}");
    }
}

#[test]
fn passes_share_their_reads_unless_that_is_off() {
    let place = Place::new();
    let prompt = "Tell me a story about a fox named Rusty, and then another one about a bear. ".repeat(20);
    let with = |group: &str| {
        let sizes = ["--slots", "smallest", "--prefill-pass", "64", "--read-group", group, "-n", "8"];
        stats(&place, &[&["run", "--temperature", "0"], &sizes[..], &[&prompt]].concat())
    };
    let (shared, alone) = (with("8192"), with("0"));
    assert_eq!(shared["output_ids"], alone["output_ids"]);
    assert!(shared["prompt_tokens"].as_u64() > Some(4 * 64), "{}", shared["prompt_tokens"]);
    let read = |report: &serde_json::Value, what: &str| report["prefill_reads"][what].as_f64().unwrap();
    assert!(
        read(&shared, "bytes") < 0.4 * read(&alone, "bytes"),
        "{} {}",
        shared["prefill_reads"],
        alone["prefill_reads"]
    );
    assert!(read(&shared, "shared_groups") > 0.0 && read(&shared, "records_spared") > 0.0);
    assert_eq!((read(&alone, "shared_groups"), read(&alone, "records_spared")), (0.0, 0.0));
    assert!(read(&alone, "bytes") < alone["bytes_read"].as_f64().unwrap(), "the reply reads, too");
}

#[test]
fn thoughts_go_to_standard_error() {
    for think in ["--think", "--think=low", "--think=xhigh"] {
        let said = ss(&["run", think, "--temperature", "0", JAPAN]).said();
        assert_eq!(said.stdout, "The capital of Japan is Tokyo.\n");
        assert!(said.stderr.contains("\nThe user asks for the capital of Japan. It is Tokyo.\n"), "{}", said.stderr);
    }
    assert!(!ss(&["run", "--temperature", "0", JAPAN]).said().stderr.contains("The user asks"));
}

#[test]
fn the_effort_of_thinking_reaches_the_prompt() {
    let place = Place::new();
    let prompt =
        |think: &str| stats(&place, &["run", think, "--temperature", "0", "-n", "1", JAPAN])["prompt_ids"].clone();
    let all = ["--think", "--think=low", "--think=medium", "--think=off"].map(prompt);
    for (i, a) in all.iter().enumerate() {
        assert!(all[i + 1..].iter().all(|b| a != b), "two efforts give the same prompt");
    }
    let capital = expected().into_iter().find(|case| case["name"] == "chat-capital").unwrap();
    assert_eq!(all[0], capital["prompt_ids"], "the template thinks as hard as it can unless told otherwise");
}

#[test]
fn a_system_message_reaches_the_prompt_and_an_empty_one_is_none() {
    let place = Place::new();
    let prompt =
        |system: &[&str]| stats(&place, &[&["run", "-n", "1"], system, &["hi"]].concat())["prompt_ids"].clone();
    assert_ne!(prompt(&["--system", "Be brief."]), prompt(&[]));
    assert_eq!(prompt(&["--system", ""]), prompt(&[]));
}

#[test]
fn a_call_is_one_line_of_json() {
    let place = Place::new();
    let tools = place.write("tools.json", WEATHER);
    for think in ["--think=off", "--think"] {
        let run = place.run([
            "run",
            think,
            "--temperature",
            "0",
            "--tools",
            tools.to_str().unwrap(),
            "What is the weather in Paris?",
        ]);
        assert_eq!(run.answer(), "{\"name\":\"get_weather\",\"arguments\":{\"city\":\"Paris\"}}\n");
    }
}

#[test]
fn a_call_that_is_cut_off_is_not_shown_as_one() {
    let place = Place::new();
    let tools = place.write("tools.json", WEATHER);
    let said = place
        .run([
            "run",
            "--temperature",
            "0",
            "-n",
            "10",
            "--tools",
            tools.to_str().unwrap(),
            "What is the weather in Paris?",
        ])
        .said();
    assert_eq!((said.code, said.stdout.as_str()), (Some(0), ""));
    assert!(said.stderr.contains("(cut off after 10 tokens)"), "{}", said.stderr);
}

#[test]
fn a_stop_string_ends_the_answer_before_it() {
    let said = ss(&["run", "--temperature", "0", "--stop", "Put", "--stop", "never", TEA]).said();
    assert_eq!(said.stdout, "Here is how to make tea:\n\n1. Boil some water.\n2. \n");
    assert!(!said.stderr.contains("cut off"), "{}", said.stderr);
}

#[test]
fn a_reply_has_at_most_max_tokens() {
    let place = Place::new();
    for limit in [1, 5] {
        let report = stats(&place, &["run", "--temperature", "0", "-n", &limit.to_string(), TEA]);
        assert_eq!((report["output_tokens"].clone(), report["finish"].clone()), (json!(limit), json!("length")));
    }
    let report = stats(&place, &["run", "--temperature", "0", "--max-tokens", "4294967295", TEA]);
    assert_eq!(report["finish"], "stop");
}

#[test]
fn a_seed_gives_the_same_reply_again_and_no_seed_a_fresh_one() {
    let story = |seed: &[&str]| {
        ss(&[&["run", "--temperature", "1"], seed, &["Tell me a story about a fox."]].concat()).answer()
    };
    let first = story(&["--seed", "7"]);
    assert_eq!(story(&["--seed", "7"]), first);
    assert_ne!(story(&["--seed", "18446744073709551615"]), first);
    assert_ne!(story(&[]), story(&[]));
}

#[test]
fn a_bias_bans_a_token() {
    let place = Place::new();
    let first = |bias: &[&str]| {
        stats(&place, &[&["run", "--temperature", "0", "-n", "1"], bias, &[TEA]].concat())["output_ids"][0].clone()
    };
    let likeliest = first(&[]);
    assert_ne!(first(&["--logit-bias", &format!("{likeliest}=-100")]), likeliest);
}

#[test]
fn both_arithmetics_and_every_backend_that_there_is_answer() {
    for flags in
        [["--arithmetic", "exact"], ["--arithmetic", "fast"], ["--backend", "auto"], ["--backend", "reference"]]
    {
        assert_eq!(ss(&["run", flags[0], flags[1], "--temperature", "0", TEA]).answer(), TEA_ANSWER);
    }
}

#[test]
fn threads_lanes_and_the_row_cache_change_no_answer() {
    let ends = [
        ["--threads", "1"],
        ["--threads", "3"],
        ["--bulk-lanes", "1"],
        ["--demand-lanes", "256"],
        ["--ngram-cache-mb", "0"],
        ["--io", "cached"],
    ];
    for flags in ends {
        assert_eq!(ss(&["run", flags[0], flags[1], "--temperature", "0", TEA]).answer(), TEA_ANSWER, "{flags:?}");
    }
}
