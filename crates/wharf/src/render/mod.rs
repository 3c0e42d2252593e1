//! The inventory as text.
//!
//! In: routes of the registry. Out: Markdown, a filled template, or a Rust module. Text from servers is escaped for where
//! it goes.

mod markdown;
mod rust;
mod template;

pub use markdown::{DESCRIPTION_MAX, escaped, markdown};
pub use rust::{RUST_MARK, RustModule, RustNote, rust};
pub use template::Template;
