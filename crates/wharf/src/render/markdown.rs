//! The inventory as Markdown, and how a server's words become Markdown that means nothing but words.

use indexmap::IndexMap;

use crate::names::ServerName;
use crate::registry::Route;
use crate::text::{Escaped, Foreign};

/// The longest description, in characters before they are escaped. What is longer ends with `…`.
pub const DESCRIPTION_MAX: usize = 200;

/// The tools by server, as a section of a prompt. The order is that of the routes.
pub fn markdown(routes: &[Route]) -> String {
    let mut text = String::from("## MCP Integrations\n\n");
    if routes.is_empty() {
        text.push_str("No external tools are available via MCP.\n");
        return text;
    }
    text.push_str("The following external tools are available via MCP:\n");
    for (server, routes) in by_server(routes) {
        text.push_str(&format!("\n### {}\n\n", escaped(server.as_str())));
        for route in routes {
            // A public name holds nothing that could end the code span.
            text.push_str(&format!("- `{}`", route.public));
            match description(route) {
                words if words.is_empty() => text.push('\n'),
                words => text.push_str(&format!(" - {words}\n")),
            }
        }
    }
    text
}

/// Routes under their servers, in the order in which the servers first appear.
pub(super) fn by_server(routes: &[Route]) -> IndexMap<&ServerName, Vec<&Route>> {
    let mut servers: IndexMap<&ServerName, Vec<&Route>> = IndexMap::new();
    for route in routes {
        servers.entry(&route.server).or_default().push(route);
    }
    servers
}

/// A tool's description: one line, cut, escaped.
pub(super) fn description(route: &Route) -> String {
    let words = route.tool.description.as_ref().map(Foreign::raw).unwrap_or_default();
    // Longer texts are cut anyway, so not all of it is put in order.
    let words = crate::text::beginning(words, 100 * DESCRIPTION_MAX);
    let line = words.split_whitespace().collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(DESCRIPTION_MAX) {
        None => escaped(&line),
        Some(_) => {
            let kept: String = line.chars().take(DESCRIPTION_MAX - 1).collect();
            format!("{}…", escaped(&kept))
        }
    }
}

/// A text on one line that Markdown shows as it is: no heading, list, link, emphasis, code, table or HTML can be made of
/// it, wherever in a line it stands, and what cannot be seen is written out.
pub fn escaped(text: &str) -> String {
    let line = Escaped(text).to_string();
    let line = line.trim();
    let chars: Vec<char> = line.chars().collect();
    let numbered = chars.iter().take_while(|c| c.is_ascii_digit()).count();
    let mut out = String::with_capacity(line.len() + 8);
    for (at, &c) in chars.iter().enumerate() {
        let before = at.checked_sub(1).map(|before| chars[before]);
        let after = chars.get(at + 1);
        let means_something = match c {
            '\\' | '`' | '*' | '[' | ']' | '<' | '>' | '&' | '|' | '~' | '$' | '^' | '@' => true,
            '!' => after == Some(&'['),
            // Inside a word it is an underscore and nothing else.
            '_' => !(is_word(before) && is_word(after.copied())),
            // At the beginning these make headings, lists and rules.
            '#' | '-' | '+' | '=' | ':' if at == 0 => true,
            '.' | ')' if at > 0 && at == numbered => true,
            // Bare addresses become links.
            '/' => before == Some(':') && after == Some(&'/'),
            '.' => at >= 3 && chars[at - 3..at].iter().all(|c| c.eq_ignore_ascii_case(&'w')),
            _ => false,
        };
        if means_something {
            out.push('\\');
        }
        out.push(c);
    }
    out
}

fn is_word(c: Option<char>) -> bool {
    c.is_some_and(char::is_alphanumeric)
}
