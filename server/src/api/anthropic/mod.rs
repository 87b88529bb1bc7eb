//! Owns: Anthropic's API: messages, and the count of their tokens (server.md section 9).
//! Invariants: fields that are left out of account are named in a header, as far as a header can safely hold their names.

pub mod count;
pub mod fields;
pub mod messages;
pub mod stream;
pub mod turns;
pub mod whole;

use warp::http::header::HeaderName;

use crate::api::common::Object;
use crate::http::answer::Answer;
use crate::http::route::Route;
use crate::shape::Fields;

/// The paths of this API.
pub const ROUTES: &[Route] = &[messages::ROUTE, count::ROUTE];

/// The header that names them.
const IGNORED: HeaderName = HeaderName::from_static("x-slotstream-ignored-fields");
/// Most names in it.
const MOST_NAMES: usize = 16;
/// Most bytes of a name in it.
const LONGEST_NAME: usize = 64;

/// Names of fields that a table does not have, as the header tells them; none where there is nothing to tell.
fn ignored(table: &Fields, fields: &Object) -> Option<String> {
    // A name is a client's text: one that could end the header, or be taken for two names, is not told.
    let safe = |name: &&str| {
        (1..=LONGEST_NAME).contains(&name.len())
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
    };
    let names: Vec<&str> = table.unknown(fields).into_iter().filter(safe).take(MOST_NAMES).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// An answer that names the fields left out of account.
fn telling(answer: Answer, ignored: Option<String>) -> Answer {
    match ignored {
        Some(names) => answer.with_header(IGNORED, &names),
        None => answer,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn told(names: &[&str]) -> Option<String> {
        let fields = names.iter().map(|name| ((*name).to_owned(), json!(1))).collect();
        ignored(&fields::BODY, &fields)
    }

    #[test]
    fn the_header_holds_safe_names_and_not_too_many() {
        assert_eq!(told(&["model", "foo", "bar-2"]).as_deref(), Some("foo, bar-2"));
        assert_eq!(told(&["model", "a\r\nset-cookie: b", "a, b", "é", "", &"x".repeat(1000)]), None);
        let many: Vec<String> = (0..100).map(|at| format!("f{at}")).collect();
        let many: Vec<&str> = many.iter().map(String::as_str).collect();
        assert_eq!(told(&many).unwrap().split(", ").count(), MOST_NAMES);
    }
}
