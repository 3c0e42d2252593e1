//! The reference servers from npm, started by Wharf.

use serde_json::json;
use wharf::config::{Profile, SandboxSetting, Transport};
use wharf::mcp::Era;
use wharf::secret::Secret;

use crate::process::reference;
use crate::walk::{Expected, program, whole};

/// The tools of `server-everything` for a client that answers no questions.
pub(crate) const EVERYTHING: [&str; 13] = [
    "echo",
    "get-annotated-message",
    "get-env",
    "get-resource-links",
    "get-resource-reference",
    "get-structured-content",
    "get-sum",
    "get-tiny-image",
    "gzip-file-as-resource",
    "toggle-simulated-logging",
    "toggle-subscriber-updates",
    "trigger-long-running-operation",
    "simulate-research-query",
];

/// What is expected of `server-everything`, over any transport.
pub(crate) fn everything() -> Expected<'static> {
    Expected {
        era: Era::Legacy,
        tools: &EVERYTHING,
        good: ("get-sum", json!({"a": 20, "b": 22}), "42"),
        bad: (
            "get-sum",
            json!({"a": "twenty", "b": 22}),
            "field `a`: expected a number, got the string \"twenty\"",
        ),
    }
}

#[tokio::test]
async fn everything_over_stdio() {
    let server = program("node", &[&reference("everything"), "stdio"], "everything");
    whole(server, "everything", &everything()).await;
}

#[tokio::test]
async fn filesystem() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().canonicalize().unwrap().join("note.txt");
    std::fs::write(&file, "the tide is high\n").unwrap();
    let allowed = file.parent().unwrap().display().to_string();
    let server = program("node", &[&reference("filesystem"), &allowed], "filesystem");
    let expected = Expected {
        era: Era::Legacy,
        tools: &[
            "read_file",
            "read_text_file",
            "read_media_file",
            "read_multiple_files",
            "write_file",
            "edit_file",
            "create_directory",
            "list_directory",
            "list_directory_with_sizes",
            "directory_tree",
            "move_file",
            "search_files",
            "get_file_info",
            "list_allowed_directories",
        ],
        good: ("read_text_file", json!({"path": file}), "the tide is high"),
        bad: ("write_file", json!({"path": file}), "missing required field `content`"),
    };
    whole(server, "filesystem", &expected).await;
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "the tide is high\n");
}

#[tokio::test]
async fn memory() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memory.jsonl");
    let entity =
        json!({"type": "entity", "name": "Kiel", "entityType": "harbour", "observations": ["on the Baltic"]});
    std::fs::write(&file, format!("{entity}\n")).unwrap();
    let mut server = program("node", &[&reference("memory")], "memory");
    if let Transport::Stdio(stdio) = &mut server.transport {
        stdio.env.insert("MEMORY_FILE_PATH".into(), Secret::new(file.display().to_string()));
    }
    let profile = Profile { write: vec![folder.path().into()], ..Profile::default() };
    server.sandbox = Some(SandboxSetting::On(Box::new(profile)));
    let expected = Expected {
        era: Era::Legacy,
        tools: &[
            "create_entities",
            "create_relations",
            "add_observations",
            "delete_entities",
            "delete_observations",
            "delete_relations",
            "read_graph",
            "search_nodes",
            "open_nodes",
        ],
        good: ("search_nodes", json!({"query": "harbour"}), "on the Baltic"),
        bad: ("open_nodes", json!({"names": "Kiel"}), "field `names`: expected a list"),
    };
    whole(server, "memory", &expected).await;
}

#[tokio::test]
async fn sequential_thinking() {
    let server = program("node", &[&reference("sequential-thinking")], "thinking");
    let thought =
        json!({"thought": "one", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1});
    let expected = Expected {
        era: Era::Legacy,
        tools: &["sequentialthinking"],
        good: ("sequentialthinking", thought, "\"thoughtNumber\": 1"),
        bad: ("sequentialthinking", json!({"thought": "one"}), "missing required field `nextThoughtNeeded`"),
    };
    whole(server, "thinking", &expected).await;
}
