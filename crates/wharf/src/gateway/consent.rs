//! A caller that can be asked is asked itself whether its call may be made: the person at its other end, by a form in
//! the words of its own era.
//!
//! In: a call that policy says to ask about. Out: a yes and how far it reaches, a no, or that nobody can be asked there.

use serde_json::json;

use crate::ask::{Answer, Answered, Asker, Question};
use crate::mcp::method;
use crate::names::ServerName;
use crate::policy::Reach;
use crate::text::Escaped;
use crate::wire::Json;

/// How much of the arguments stands in the question.
const SHOWN: usize = 8 * 1024;

/// Asks by a form. A caller that takes no forms has not answered.
pub(super) fn ask(asker: &impl Asker, server: &ServerName, question: Question) -> Answered {
    let Question::Consent(consent) = question else {
        return Box::pin(std::future::ready(Answer::Decline));
    };
    let text = consent.arguments.to_json();
    let all = text.as_str();
    let shown = &all[..all.floor_char_boundary(SHOWN)];
    let more =
        if shown.len() < all.len() { format!(" … ({} bytes in all)", all.len()) } else { String::new() };
    let message = format!(
        "May `{}` be called on `{server}` with these arguments? {}{more}",
        Escaped(consent.tool.as_str()),
        Escaped(shown),
    );
    let reaches: Vec<(&str, Reach)> =
        consent.reaches.iter().filter_map(|reach| Some((word(*reach)?, *reach))).collect();
    let words: Vec<&str> = std::iter::once("no").chain(reaches.iter().map(|(word, _)| *word)).collect();
    let titles: Vec<&str> =
        std::iter::once("No").chain(reaches.iter().map(|(_, reach)| reach.words())).collect();
    let params = Json::of(&json!({
        "mode": "form",
        "message": message,
        "requestedSchema": {
            "type": "object",
            "properties": { "allow": { "type": "string", "title": "Allow", "enum": words, "enumNames": titles } },
            "required": ["allow"],
        },
    }));
    let Some(asking) = asker.relay(server, method::ELICIT, Some(&params)) else {
        return Box::pin(std::future::ready(Answer::Cancel));
    };
    Box::pin(async move {
        let Ok(said) = asking.await else { return Answer::Cancel };
        let text = |json: Option<Json>| json.and_then(|json| json.to::<String>().ok()).unwrap_or_default();
        if text(said.member("action")) != "accept" {
            return Answer::Decline;
        }
        let allow = text(said.member("content").and_then(|content| content.member("allow")));
        let meant = reaches.iter().find(|(word, _)| *word == allow);
        meant.map_or(Answer::Decline, |(_, reach)| Answer::Allow(*reach))
    })
}

fn word(reach: Reach) -> Option<&'static str> {
    match reach {
        Reach::Once => Some("once"),
        Reach::Tool => Some("tool"),
        Reach::Session => Some("session"),
        // A caller's view of a server is its session's.
        Reach::Server => None,
    }
}
