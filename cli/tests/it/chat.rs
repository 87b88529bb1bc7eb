//! Owns: the chat, through a pseudo-terminal as a person has it.

use std::process::Command;

use rexpect::process::wait::WaitStatus;
use rexpect::reader::Options;
use rexpect::session::{PtySession, spawn_with_options};

use crate::signals::ENDLESS;
use crate::{Place, SS};

/// Milliseconds that a person waits for anything here.
const PATIENCE: u64 = 20_000;

struct Chat {
    session: PtySession,
    // Kept while the chat lasts.
    _place: Place,
}

impl Chat {
    fn open(flags: &[&str]) -> Self {
        let place = Place::new();
        let mut chat = Chat { session: terminal(place.command(SS), flags), _place: place };
        chat.sees("/help says what can be typed, /bye leaves");
        chat.sees(">>> ");
        chat
    }

    /// What stands before `text`.
    #[track_caller]
    fn sees(&mut self, text: &str) -> String {
        match self.session.exp_string(text) {
            Ok(before) => before,
            Err(error) => panic!("expected {text:?}: {error}"),
        }
    }

    /// Types a line; gives what is shown until the next prompt.
    #[track_caller]
    fn says(&mut self, line: &str) -> String {
        self.types(line);
        self.sees(">>> ")
    }

    /// Types a line, and waits until it is on the screen.
    #[track_caller]
    fn types(&mut self, line: &str) {
        self.session.send_line(line).unwrap();
        self.sees(line);
    }

    #[track_caller]
    fn leaves(mut self, code: i32) {
        self.session.exp_eof().unwrap();
        let status = self.session.process().wait().unwrap();
        assert!(matches!(status, WaitStatus::Exited(_, found) if found == code), "{status:?}");
    }
}

fn terminal(mut command: Command, flags: &[&str]) -> PtySession {
    command.env("TERM", "xterm").arg("run").args(flags);
    let options = Options::new().timeout_ms(Some(PATIENCE)).strip_ansi_escape_codes(true);
    spawn_with_options(command, options).unwrap()
}

#[test]
fn a_chat_answers_remembers_and_forgets() {
    let mut chat = Chat::open(&["--temperature", "0", "-v"]);
    let first = chat.says("What is the capital of Japan?");
    assert!(first.contains("The capital of Japan is Tokyo."), "{first}");
    let tokens = |shown: &str| -> usize {
        let line = shown.lines().find(|line| line.contains(" prompt tokens at ")).unwrap();
        line.split_whitespace().next().unwrap().parse().unwrap()
    };
    let again = chat.says("What is the capital of Japan?");
    assert!(tokens(&again) > tokens(&first) + 10, "what was said is part of the prompt: {again}");
    chat.says("/clear");
    let fresh = chat.says("What is the capital of Japan?");
    assert_eq!(tokens(&fresh), tokens(&first), "nothing is left of what was said");
    chat.types("/bye");
    chat.leaves(0);
}

#[test]
fn settings_are_shown_changed_and_refused() {
    let mut chat = Chat::open(&["--top-k", "7"]);
    let help = chat.says("/help");
    assert!(["/set", "/clear", "/bye", "\"\"\"", "Ctrl-C"].iter().all(|part| help.contains(part)), "{help}");
    let shown = chat.says("/set");
    assert!(
        shown.contains("temperature         0.7 (default)") && shown.contains("top_k               7\r\n"),
        "{shown}"
    );
    chat.says("/set temperature 0");
    chat.says("/set max_tokens 3");
    chat.says("/set system \"Be brief.\"");
    let shown = chat.says("/set");
    for row in ["temperature         0\r\n", "max_tokens          3\r\n", "system              Be brief.\r"] {
        assert!(shown.contains(row), "{row:?}: {shown}");
    }
    chat.says("/set system default");
    let answer = chat.says("hi");
    assert!(answer.contains("I am Nano\r\n(cut off after 3 tokens)"), "{answer}");
    let wrong = chat.says("/set temperature nan");
    assert!(wrong.contains("`nan` is no value for `temperature`: expected a number from 0"), "{wrong}");
    assert!(chat.says("/set frob 1").contains("`frob` cannot be set"));
    assert!(chat.says("/frob").contains("`/frob` is no command; /help lists them"));
    chat.session.send_control('d').unwrap();
    chat.leaves(0);
}

#[test]
fn a_message_may_have_several_lines() {
    let mut chat = Chat::open(&["--temperature", "0"]);
    chat.types("\"\"\"What is the capital");
    chat.sees("... ");
    let answer = chat.says("of Japan?\"\"\"");
    assert!(answer.contains("Tokyo"), "{answer}");
    chat.types("\"\"\"never mind");
    chat.sees("... ");
    chat.session.send_control('c').unwrap();
    chat.sees(">>> ");
    chat.session.send_control('d').unwrap();
    chat.leaves(0);
}

#[test]
fn ctrl_c_stops_the_answer_and_the_chat_goes_on() {
    let mut chat = Chat::open(&[&["--temperature", "1"], &ENDLESS[..]].concat());
    chat.types("Tell me a story about a fox.");
    chat.sees(" fox");
    chat.session.send_control('c').unwrap();
    chat.sees("(stopped)\r\n");
    chat.sees(">>> ");
    chat.says("/set max_tokens 2");
    assert!(chat.says("hi").contains("(cut off after 2 tokens)"));
    chat.types("/bye");
    chat.leaves(0);
}

#[test]
fn a_person_sees_styles_unless_they_said_no() {
    let styled = |variable: Option<&str>| {
        let place = Place::new();
        let mut command = place.command(SS);
        command.env("TERM", "xterm").args(["run", "--temperature", "0", "-n", "1", "hi"]);
        variable.map(|name| command.env(name, "1"));
        let options = Options::new().timeout_ms(Some(PATIENCE));
        spawn_with_options(command, options).unwrap().exp_eof().unwrap().contains('\u{1b}')
    };
    assert!(styled(None));
    assert!(!styled(Some("NO_COLOR")));
}

#[test]
fn raw_needs_a_prompt() {
    let place = Place::new();
    let mut session = terminal(place.command(SS), &["--raw"]);
    let text = session.exp_eof().unwrap();
    assert!(text.contains("error: `--raw` continues a prompt: give one"), "{text}");
}
