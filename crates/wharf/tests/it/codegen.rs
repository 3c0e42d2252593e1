//! Rust modules for servers: they compile, are formatted, carry calls, and nothing of a server becomes code.
//!
//! `codegen/odd.rs` is generated from `codegen/odd.json`, tools with every hostile and odd thing that was thought of. It
//! is compiled here and compared byte for byte with what is generated now; `WHARF_WRITE=1` writes it anew.

mod inert;
#[rustfmt::skip]
mod odd;
mod properties;
mod types;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::render::{RUST_MARK, RustModule, rust};
use wharf::wire::Json;

use crate::support::folder;

fn here(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/codegen").join(name)
}

fn corpus() -> Vec<Value> {
    serde_json::from_str(&fs::read_to_string(here("odd.json")).unwrap()).unwrap()
}

fn generate(server: &str, tools: &[Value]) -> RustModule {
    let tools: Vec<Tool> = tools.iter().map(|tool| Tool::read(Json::of(tool)).unwrap()).collect();
    rust(&ServerName::parse(server).unwrap(), &tools)
}

/// The module of one tool that takes this.
fn taking(schema: Value) -> RustModule {
    generate("dock", &[json!({"name": "tool", "inputSchema": schema})])
}

/// What `rustfmt` would change in a source, by its default settings; empty if nothing.
fn unformatted(source: &str, edition: &str) -> String {
    let folder = folder();
    let file = folder.path().join("generated.rs");
    fs::write(&file, source).unwrap();
    let done = Command::new("rustfmt").args(["--edition", edition, "--check"]).arg(&file).output().unwrap();
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    if done.status.success() { String::new() } else { text(&done.stdout) + &text(&done.stderr) }
}

#[test]
fn l57_the_module_that_is_compiled_here_is_the_one_that_is_generated() {
    let source = generate("odd", &corpus()).source;
    if std::env::var_os("WHARF_WRITE").is_some() {
        fs::write(here("odd.rs"), &source).unwrap();
    }
    assert!(fs::read_to_string(here("odd.rs")).unwrap() == source, "codegen/odd.rs is out of date");
    assert_eq!(generate("odd", &corpus()).source, source, "the same tools give the same bytes");
    assert!(source.lines().nth(2).unwrap().starts_with(RUST_MARK));
}

#[test]
fn l57_rustfmt_leaves_it_as_it_is() {
    let source = generate("odd", &corpus()).source;
    for edition in ["2021", "2024"] {
        assert_eq!(unformatted(&source, edition), "");
    }
    assert_ne!(unformatted("fn  spaced() {}\n", "2024"), "", "what is not formatted is noticed");
}

#[test]
fn l57_what_a_type_cannot_say_is_noted_and_the_rest_is_typed() {
    let module = taking(json!({
        "type": "object",
        "properties": {
            "far": {"$ref": "https://example.com/schema.json"},
            "mixed": {"enum": ["a", 1]},
            "tuple": {"type": "array", "prefixItems": [{"type": "string"}]},
            "never": false,
            "twice": {"allOf": [{"type": "string"}, {"type": "integer"}]},
            "anything": {},
            "good": {"type": "integer"},
        },
    }));
    let notes: Vec<String> = module.notes.iter().map(ToString::to_string).collect();
    let expected = [
        "tool `tool`, `arguments.far`: the reference `\"https://example.com/schema.json\"` leads nowhere",
        "tool `tool`, `arguments.mixed`: an `enum` of several kinds of value has no type",
        "tool `tool`, `arguments.tuple`: a list whose places have types of their own is a list of anything",
        "tool `tool`, `arguments.never`: the schema allows nothing, or is none",
        "tool `tool`, `arguments.twice`: `allOf` of schemas that are not all objects has no type",
    ];
    assert_eq!(notes, expected);
    assert!(module.source.contains("pub good: Option<i64>,"), "{}", module.source);
    assert!(module.source.contains("pub anything: Option<serde_json::Value>,"), "{}", module.source);
}

#[test]
fn l57_schemas_that_grow_without_end_end() {
    let times = |count: usize, of: Value| Value::Array(vec![of; count]);
    let chain = |n: usize| json!({"$ref": format!("#/$defs/d{n}")});
    let long: serde_json::Map<String, Value> = (0..5000).map(|n| (format!("d{n}"), chain(n + 1))).collect();
    let bomb = |n: usize| json!({"allOf": times(4, chain(n + 1))});
    let bombs: serde_json::Map<String, Value> = (0..40).map(|n| (format!("d{n}"), bomb(n))).collect();
    let fan = |n: usize| json!({"anyOf": [{"type": "object", "properties": {"a": chain(n + 1), "b": chain(n + 1)}}, chain(n + 1)]});
    let fans: serde_json::Map<String, Value> = (0..30).map(|n| (format!("d{n}"), fan(n))).collect();
    let deep = (0..110).fold(json!({"type": "string"}), |of, _| json!({"type": "array", "items": of}));
    for (what, defs, of) in [
        ("long", long, chain(0)),
        ("bombs", bombs, chain(0)),
        ("fans", fans, chain(0)),
        ("deep", Default::default(), deep),
    ] {
        let started = std::time::Instant::now();
        let module = taking(
            json!({"type": "object", "properties": {"of": of, "good": {"type": "string"}}, "$defs": defs}),
        );
        assert!(started.elapsed().as_secs() < 20, "{what}");
        assert!(!module.notes.is_empty() && module.source.len() < 1_000_000, "{what}");
        assert!(module.source.contains("pub good: Option<String>,"), "{what}");
    }
    // The same shapes in moderation have types.
    let deep = (0..5).fold(json!({"type": "string"}), |of, _| json!({"type": "array", "items": of}));
    let module = taking(json!({"type": "object", "properties": {"of": deep}}));
    assert!(module.source.contains("pub of: Option<Vec<Vec<Vec<Vec<Vec<String>>>>>>,"), "{}", module.source);
}
