//! The servers from PyPI, started by Wharf. They speak the modern era.

use std::process::Command;

use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use wharf::mcp::Era;

use crate::process::python;
use crate::walk::{Expected, program, whole};

#[tokio::test]
async fn git() {
    let folder = tempfile::tempdir().unwrap();
    let repository = folder.path().canonicalize().unwrap().display().to_string();
    let made = Command::new("git").args(["init", "--quiet", "--initial-branch=quay", &repository]).status();
    assert!(made.unwrap().success());
    let server = program(&python(), &["-m", "mcp_server_git", "--repository", &repository], "git");
    let expected = Expected {
        era: Era::Modern,
        tools: &[
            "git_status",
            "git_diff_unstaged",
            "git_diff_staged",
            "git_diff",
            "git_commit",
            "git_add",
            "git_reset",
            "git_log",
            "git_create_branch",
            "git_checkout",
            "git_show",
            "git_branch",
        ],
        good: ("git_status", json!({"repo_path": repository}), "On branch quay"),
        bad: (
            "git_add",
            json!({"repo_path": repository, "files": []}),
            "field `files`: expected at least 1 items",
        ),
    };
    whole(server, "git", &expected).await;
}

#[tokio::test]
async fn time() {
    let server = program(&python(), &["-m", "mcp_server_time", "--local-timezone", "UTC"], "time");
    let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
    let expected = Expected {
        era: Era::Modern,
        tools: &["get_current_time", "convert_time"],
        good: ("convert_time", noon, "T21:00:00+09:00"),
        bad: ("get_current_time", json!({}), "missing required field `timezone`"),
    };
    whole(server, "time", &expected).await;
}

#[tokio::test]
async fn fetch() {
    let page = page("<html><body><h1>Berths</h1><p>Two berths are free tonight.</p></body></html>").await;
    let mut server = program(&python(), &["-m", "mcp_server_fetch", "--allow-private-ips"], "fetch");
    // It is there to reach pages, and this one is on loopback.
    server.sandbox = Some(wharf::config::SandboxSetting::Off);
    let expected = Expected {
        era: Era::Modern,
        tools: &["fetch"],
        good: ("fetch", json!({"url": page}), "Two berths are free tonight."),
        bad: (
            "fetch",
            json!({"url": page, "max_length": "all"}),
            "field `max_length`: expected a whole number",
        ),
    };
    whole(server, "fetch", &expected).await;
}

/// The address of a page on loopback, there for as long as the test runs.
pub(crate) async fn page(html: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = vec![0; 8192];
                let read = stream.read(&mut request).await.unwrap_or(0);
                let found = request[..read].starts_with(b"GET /page ");
                let (status, body) = if found { ("200 OK", html) } else { ("404 Not Found", "") };
                let head =
                    format!("content-type: text/html\r\ncontent-length: {}\r\nconnection: close", body.len());
                let _ =
                    stream.write_all(format!("HTTP/1.1 {status}\r\n{head}\r\n\r\n{body}").as_bytes()).await;
            });
        }
    });
    format!("http://127.0.0.1:{port}/page")
}
