//! Owns: stop strings (server.md section 5).
//! Refuses: more than [`MAX_STOPS`] strings, and strings over [`MAX_STOP_BYTES`] bytes; empty ones are dropped.
//! Invariants: the match and what follows are never given out; only the longest tail that may begin a stop is held back.

use crate::error::TextError;
use crate::search::Search;

/// Stop strings accepted in one request.
pub const MAX_STOPS: usize = 16;

/// Bytes accepted in one stop string.
pub const MAX_STOP_BYTES: usize = 256;

/// Text watched for the strings that end it. The stop that ends first counts; of those ending together, the longest.
#[derive(Clone, Debug)]
pub struct Stops {
    strings: Vec<String>,
    search: Search,
    met: Option<usize>,
}

impl Stops {
    /// A watch for `strings`.
    pub fn new(strings: &[String]) -> Result<Self, TextError> {
        let strings: Vec<String> = strings.iter().filter(|text| !text.is_empty()).cloned().collect();
        if strings.len() > MAX_STOPS {
            return Err(TextError::TooManyStops { most: MAX_STOPS, found: strings.len() });
        }
        if let Some(long) = strings.iter().find(|text| text.len() > MAX_STOP_BYTES) {
            return Err(TextError::LongStop { most: MAX_STOP_BYTES, found: long.len() });
        }
        let search = Search::new(strings.iter().map(String::as_str));
        Ok(Stops { strings, search, met: None })
    }

    /// Reads a piece: the text that may be given out, and whether a stop was met. After a stop nothing is given out.
    pub fn push(&mut self, text: &str) -> (String, bool) {
        if self.met.is_some() {
            return (String::new(), true);
        }
        let step = self.search.push(text);
        self.met = step.found.map(|(stop, _)| stop);
        (step.before, self.met.is_some())
    }

    /// The end of the text: what was held back and turned out to be no stop.
    pub fn finish(&mut self) -> String {
        self.search.drain()
    }

    /// The stop that was met.
    pub fn met(&self) -> Option<&str> {
        self.met.and_then(|stop| self.strings.get(stop)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stops(strings: &[&str]) -> Stops {
        Stops::new(&strings.iter().map(|s| s.to_string()).collect::<Vec<_>>()).unwrap()
    }

    fn run(strings: &[&str], pieces: &[&str]) -> (String, Option<String>) {
        let mut stops = stops(strings);
        let mut text = String::new();
        for piece in pieces {
            let (more, stopped) = stops.push(piece);
            text += &more;
            if stopped {
                return (text, stops.met().map(str::to_owned));
            }
        }
        (text + &stops.finish(), None)
    }

    #[test]
    fn the_text_ends_before_the_stop() {
        assert_eq!(run(&["5"], &["1 2 3 4 5 6"]), ("1 2 3 4 ".into(), Some("5".into())));
        assert_eq!(run(&["\n\n", "END"], &["a\n", "\nb"]), ("a".into(), Some("\n\n".into())));
        assert_eq!(run(&["日本"], &["x日", "本y"]), ("x".into(), Some("日本".into())));
        assert_eq!(run(&["never"], &["a nev", "e"]), ("a neve".into(), None));
        assert_eq!(run(&[""], &["a"]), ("a".into(), None));
    }

    #[test]
    fn a_held_beginning_is_given_out_as_soon_as_it_fails() {
        let mut stops = stops(&["stop"]);
        assert_eq!(stops.push("a sto"), ("a ".into(), false));
        assert_eq!(stops.push("rm st"), ("storm ".into(), false));
        assert_eq!(stops.finish(), "st");
    }

    #[test]
    fn nothing_is_given_out_after_a_stop() {
        let mut stops = stops(&["x"]);
        assert_eq!(stops.push("axb"), ("a".into(), true));
        assert_eq!(stops.push("c"), (String::new(), true));
        assert_eq!(stops.finish(), "");
    }

    #[test]
    fn limits_are_kept() {
        let seventeen: Vec<String> = (0..17).map(|i| i.to_string()).collect();
        assert!(matches!(Stops::new(&seventeen), Err(TextError::TooManyStops { found: 17, .. })));
        assert!(matches!(Stops::new(&["x".repeat(257)]), Err(TextError::LongStop { found: 257, .. })));
        let padded: Vec<String> = seventeen[..16].iter().cloned().chain([String::new()]).collect();
        assert!(Stops::new(&padded).is_ok());
    }
}
