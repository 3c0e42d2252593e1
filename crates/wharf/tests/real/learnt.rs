//! Real servers in the sandbox with a profile that was learnt from watching them: each works with it, and is refused what
//! lies outside of it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf::config::{SandboxSetting, ServerConfig, Transport};
use wharf::connect::let_in;
use wharf::policy::Policy;
use wharf::sandbox::{Learnt, Profile, Sandbox};
use wharf::secret::Secret;
use wharf::{Host, Outcome};

use crate::process::{python, reference, sandbox};
use crate::python::page;
use crate::walk::{SERVER, call, program};

/// A call of a tool.
type Told<'a> = (&'a str, Value);

/// How often a server is watched, at most: one that stops at the first thing it lacks tells of the next when it has that.
const ROUNDS: usize = 5;
const PATIENCE: Duration = Duration::from_secs(180);

/// A host with this server in this sandbox.
async fn host(server: &ServerConfig, sandbox: Sandbox) -> Host {
    let mut server = server.clone();
    // Whoever is watched is slow, and the machine may be busy.
    (server.start_timeout, server.timeout) = (PATIENCE, PATIENCE);
    let builder = Host::builder().server(server).policy(policy()).environment(std::env::vars());
    builder.sandbox(sandbox).start().await.unwrap()
}

fn policy() -> Policy {
    Policy::strict().with_commands([python()])
}

/// Watches the server while it does this, and gives the smallest profile with which nothing was refused.
async fn learn(server: &ServerConfig, calls: &[Told<'_>]) -> (ServerConfig, Profile) {
    let (mut server, mut profile) = (server.clone(), Profile::default());
    for _ in 0..ROUNDS {
        server.sandbox = Some(SandboxSetting::On(Box::new(profile.clone())));
        let found = watch(&server, calls).await;
        if found == Learnt::default() {
            return (server, profile);
        }
        assert_eq!(found.secret, Vec::<PathBuf>::new());
        profile.read.extend(found.read);
        profile.write.extend(found.write);
        profile.domains.extend(found.domains);
    }
    panic!("there is no end to what it wants: {profile:?}");
}

async fn watch(server: &ServerConfig, calls: &[Told<'_>]) -> Learnt {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let watched = sandbox().home(std::env::home_dir().unwrap()).watched(&notes).expect("strace: run ./check");
    let host = host(server, watched.clone()).await;
    for (tool, arguments) in calls {
        call(&host, tool, arguments).await;
    }
    host.close().await;
    let seen = let_in(server, &policy(), &std::env::vars().collect(), &watched).unwrap().unwrap();
    watched.learn(&String::from_utf8_lossy(&std::fs::read(&notes).unwrap()), (&seen.read, &seen.write))
}

/// What comes of calls, with what was learnt and nothing else.
async fn within(server: &ServerConfig, calls: &[Told<'_>]) -> Vec<Outcome> {
    let host = host(server, sandbox()).await;
    let mut outcomes = Vec::new();
    for (tool, arguments) in calls {
        outcomes.push(call(&host, tool, arguments).await);
    }
    host.close().await;
    outcomes
}

#[track_caller]
fn works(outcomes: &[Outcome]) {
    for outcome in outcomes {
        assert!(outcome.success, "{outcome:?}");
    }
}

#[track_caller]
fn is_refused(outcome: &Outcome, words: &[&str]) {
    assert!(!outcome.success, "{outcome:?}");
    let said = outcome.to_text();
    assert!(words.iter().any(|word| said.contains(word)), "{said}");
}

fn folder() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().canonicalize().unwrap();
    (folder, path)
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[tokio::test]
async fn l17_filesystem_with_a_learnt_profile() {
    let ((_one, given), (_two, other)) = (folder(), folder());
    let server = program("node", &[&reference("filesystem"), &text(&given), &text(&other)], "learnt-files");
    let write = |folder: &Path| ("write_file", json!({"path": folder.join("note.txt"), "content": "tide"}));
    let (server, profile) = learn(&server, &[write(&given)]).await;
    assert_eq!((profile.write, profile.read, profile.domains), (vec![given.clone()], vec![], vec![]));
    std::fs::remove_file(given.join("note.txt")).unwrap();
    let outcomes = within(&server, &[write(&given), write(&other)]).await;
    works(&outcomes[..1]);
    assert_eq!(std::fs::read_to_string(given.join("note.txt")).unwrap(), "tide");
    is_refused(&outcomes[1], &["EROFS"]);
    assert_eq!(other.read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn l17_git_with_a_learnt_profile() {
    let ((_one, given), (_two, other)) = (folder(), folder());
    for repository in [&given, &other] {
        let git = |args: &[&str]| {
            let done = Command::new("git").arg("-C").arg(repository).args(args).status();
            assert!(done.unwrap().success(), "{args:?}");
        };
        git(&["init", "--quiet", "--initial-branch=quay"]);
        git(&["config", "user.name", "Ada"]);
        git(&["config", "user.email", "ada@example.com"]);
        std::fs::write(repository.join("note.txt"), "tide").unwrap();
    }
    let server = program(&python(), &["-m", "mcp_server_git"], "learnt-git");
    let add = |at: &Path| ("git_add", json!({"repo_path": at, "files": ["note.txt"]}));
    let commit = |at: &Path| ("git_commit", json!({"repo_path": at, "message": "Note the tide"}));
    // First it lacks the repository, then it cannot change it.
    let (server, profile) = learn(&server, &[add(&given)]).await;
    // It looks for the user's own settings, too, where there are any.
    let read: Vec<_> = profile.read.into_iter().filter(|path| !path.ends_with(".gitconfig")).collect();
    assert_eq!((read, profile.write), (vec![given.clone()], vec![given.join(".git")]));
    let log = ("git_log", json!({"repo_path": given}));
    let outcomes = within(&server, &[add(&given), commit(&given), log, add(&other)]).await;
    works(&outcomes[..3]);
    assert!(outcomes[2].to_text().contains("Note the tide"), "{outcomes:?}");
    is_refused(&outcomes[3], &[&text(&other)]);
    assert!(!other.join(".git/index").exists(), "it is as it was");
}

#[tokio::test]
async fn l17_memory_with_a_learnt_profile() {
    let ((_one, given), (_two, other)) = (folder(), folder());
    let remembers = |folder: &Path| {
        let mut server = program("node", &[&reference("memory")], "learnt-memory");
        if let Transport::Stdio(stdio) = &mut server.transport {
            let file = folder.join("memory.jsonl");
            stdio.env.insert("MEMORY_FILE_PATH".into(), Secret::new(text(&file)));
        }
        server
    };
    let entity = json!({"name": "Kiel", "entityType": "harbour", "observations": ["on the Baltic"]});
    let create = ("create_entities", json!({"entities": [entity]}));
    let (server, profile) = learn(&remembers(&given), std::slice::from_ref(&create)).await;
    assert_eq!(profile.write, std::slice::from_ref(&given), "{profile:?}");
    let read = ("read_graph", json!({}));
    let outcomes = within(&server, &[create.clone(), read]).await;
    works(&outcomes);
    assert!(outcomes[1].to_text().contains("on the Baltic"), "{outcomes:?}");
    assert!(given.join("memory.jsonl").exists());
    // The same profile, and a file that it does not let in.
    let elsewhere = ServerConfig { sandbox: server.sandbox, ..remembers(&other) };
    let outcomes = within(&elsewhere, &[create]).await;
    is_refused(&outcomes[0], &["ENOENT", "EROFS"]);
    assert_eq!(other.read_dir().unwrap().count(), 0);
}

#[tokio::test]
async fn l17_fetch_with_a_learnt_profile() {
    let (here, there) = (page("<p>Two berths are free.</p>").await, page("<p>None is free.</p>").await);
    let server = program(&python(), &["-m", "mcp_server_fetch", "--allow-private-ips"], "learnt-fetch");
    let get = |url: &str| ("fetch", json!({"url": url}));
    let (server, profile) = learn(&server, &[get(&here)]).await;
    let rule = here.trim_start_matches("http://").trim_end_matches("/page");
    assert_eq!((profile.domains, profile.write), (vec![rule.to_owned()], vec![]));
    let outcomes = within(&server, &[get(&here), get(&there), get("http://example.com/")]).await;
    works(&outcomes[..1]);
    assert!(outcomes[0].to_text().contains("Two berths are free."), "{outcomes:?}");
    is_refused(&outcomes[1], &["403"]);
    is_refused(&outcomes[2], &["403"]);
}

#[tokio::test]
async fn l17_everything_needs_no_profile() {
    let page = page("<p>Two berths are free.</p>").await;
    let server = program("node", &[&reference("everything"), "stdio"], "learnt-everything");
    let sum = ("get-sum", json!({"a": 20, "b": 22}));
    let image = ("get-tiny-image", json!({}));
    let (server, profile) = learn(&server, &[sum.clone(), image.clone()]).await;
    assert_eq!(profile, Profile::default());
    let zip = ("gzip-file-as-resource", json!({"name": "x.gz", "data": page, "outputType": "resource"}));
    let outcomes = within(&server, &[sum, image, zip]).await;
    works(&outcomes[..2]);
    is_refused(&outcomes[2], &["fetch failed", "ECONNREFUSED", "403"]);
    assert_eq!(outcomes[0].server.as_ref().unwrap().as_str(), SERVER);
}
