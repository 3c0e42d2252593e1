//! Any text as a name: what is accepted obeys the rule, is accepted again unchanged, and shows itself without tricks.

use wharf::names::{SERVER_NAME_MAX, ServerName, TOOL_NAME_MAX, ToolName};
use wharf::text::is_unsafe_to_show;

pub(crate) fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let safe = |shown: String| assert!(!shown.chars().any(is_unsafe_to_show), "{shown:?}");
    match ServerName::parse(text) {
        Ok(name) => {
            assert!(
                name.as_str().len() <= SERVER_NAME_MAX
                    && name.as_str().starts_with(|c: char| c.is_ascii_lowercase())
            );
            assert_eq!(ServerName::parse(name.as_str()).unwrap(), name);
        }
        Err(e) => safe(e.to_string()),
    }
    match ToolName::parse(text) {
        Ok(name) => {
            assert!(name.as_str() == text && text.len() <= TOOL_NAME_MAX);
            safe(name.to_string());
            safe(format!("{name:?}"));
        }
        Err(e) => safe(e.to_string()),
    }
}
