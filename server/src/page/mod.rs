//! Owns: the page for browsers: one document, made once of the files beside this one, and the policy that it is served under.
//! Refuses: anything from elsewhere: the document holds its style and its scripts, and the policy lets no others run.
//! Invariants: the policy names each script and the style by their hash; text never becomes markup (trusted types).

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};
use warp::http::HeaderMap;
use warp::http::header::{ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};

use crate::http::answer::Answer;

const INDEX: &str = include_str!("index.html");
const STYLE: &str = include_str!("style.css");
/// The scripts, in their order: a later one uses what an earlier one says.
const SCRIPTS: [(&str, &str); 5] = [
    ("page.js", include_str!("page.js")),
    ("text.js", include_str!("text.js")),
    ("chat.js", include_str!("chat.js")),
    ("figures.js", include_str!("figures.js")),
    ("live.js", include_str!("live.js")),
];

static PAGE: LazyLock<Page> = LazyLock::new(join);

/// The document and its policy.
struct Page {
    document: String,
    policy: String,
}

/// Whether a request comes from a browser that wants a page.
pub fn is_wanted(headers: &HeaderMap) -> bool {
    headers.get(ACCEPT).and_then(|accept| accept.to_str().ok()).is_some_and(|accept| accept.contains("text/html"))
}

/// The page.
pub fn answer() -> Answer {
    Answer::whole("text/html; charset=utf-8", PAGE.document.clone().into_bytes())
        .with_header(CONTENT_SECURITY_POLICY, &PAGE.policy)
        .with_header(X_CONTENT_TYPE_OPTIONS, "nosniff")
        .with_header(REFERRER_POLICY, "no-referrer")
        .with_header(CACHE_CONTROL, "no-cache")
}

/// Puts the files in the places of their links.
fn join() -> Page {
    let mut document = INDEX.replace(&style_link(), &format!("<style>\n{STYLE}</style>"));
    let mut scripts = String::new();
    for (name, script) in SCRIPTS {
        document = document.replace(&script_link(name), &format!("<script>\n{script}</script>"));
        scripts += &format!(" {}", hash(script));
    }
    let policy = format!(
        "default-src 'none'; script-src{scripts}; style-src {}; img-src data:; connect-src 'self'; base-uri 'none'; \
         form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
        hash(STYLE)
    );
    Page { document, policy }
}

fn style_link() -> String {
    "<link rel=\"stylesheet\" href=\"style.css\">".to_owned()
}

fn script_link(name: &str) -> String {
    format!("<script src=\"{name}\"></script>")
}

/// What a policy calls an element whose text is that, after the line's end that follows its tag.
fn hash(text: &str) -> String {
    let digest = Sha256::new().chain_update("\n").chain_update(text).finalize();
    format!("'sha256-{}'", STANDARD.encode(digest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_is_in_the_document_and_nothing_is_linked() {
        assert!(INDEX.contains(&style_link()) && PAGE.document.contains(STYLE));
        for (name, script) in SCRIPTS {
            assert!(INDEX.contains(&script_link(name)) && PAGE.document.contains(script), "{name}");
            assert_eq!(script.to_lowercase().matches("</script").count(), 0, "{name} would end its element");
        }
        assert!(!STYLE.contains("url(") && !STYLE.contains("@import"));
        for link in ["src=\"", "<link rel=\"stylesheet\"", "href=\"http"] {
            assert!(!PAGE.document.contains(link), "{link}");
        }
    }

    #[test]
    fn the_policy_allows_these_elements_by_their_hash() {
        assert_eq!(PAGE.policy.matches("'sha256-").count(), SCRIPTS.len() + 1);
        for tag in ["script", "style"] {
            for element in PAGE.document.split(&format!("<{tag}>")).skip(1) {
                let text = element.split(&format!("</{tag}>")).next().unwrap();
                let digest = STANDARD.encode(Sha256::digest(text));
                assert!(PAGE.policy.contains(&format!("'sha256-{digest}'")), "{tag}");
            }
        }
    }
}
