//! The record: every decision and every call once, without secrets, and nothing where it cannot be written.

use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf::ask::Answer;
use wharf::config::ServerConfig;
use wharf::host::{HostBuilder, NoArguments};
use wharf::names::{CallerName, ServerName};
use wharf::policy::{Permission, Reach};
use wharf::secret::Secret;
use wharf::store::{Audit, AuditOptions, Log, Search};
use wharf::wire::Json;
use wharf::{CallOptions, Host, LocalTool};
use wharf_testkit::http::Reply;
use wharf_testkit::{HttpPuppet, Puppet, Step};

use crate::sessions::Person;
use crate::support::{at, count, effects, error, folder, once, puppet, quick, received, soon, until};

/// A log in a folder of its own.
pub(crate) fn log_in(folder: &TempDir) -> PathBuf {
    folder.path().join("state/audit.db")
}

/// A host on record.
pub(crate) async fn audited(log: &Path, builder: HostBuilder) -> (Host, Audit) {
    let audit = Audit::open(log, AuditOptions::default()).unwrap();
    (builder.audit(&audit).start().await.unwrap(), audit)
}

/// Everything that is on record, without what was under way.
pub(crate) fn records(log: &Path) -> Vec<Value> {
    let all = Log::open(log).unwrap().search(&Search::default()).unwrap();
    let all = all.iter().map(|record| serde_json::from_str(&record.json).unwrap());
    all.filter(|record: &Value| record["kind"] != "begin").collect()
}

pub(crate) fn of_kind(records: &[Value], kind: &str) -> Vec<Value> {
    records.iter().filter(|record| record["kind"] == kind).cloned().collect()
}

fn several() -> Puppet {
    let failed = json!({"content": [{"type": "text", "text": "the tide is out"}], "isError": true});
    Puppet::new()
        .plain_tool("echo")
        .plain_tool("fails")
        .plain_tool("refuses")
        .plain_tool("hangs")
        .plain_tool("hidden")
        .on("tool:fails", [Step::Reply(failed)])
        .on("tool:refuses", [Step::ReplyError { code: 1, message: "no".into(), data: None }])
        .on("tool:hangs", [Step::Hang])
}

fn pup(script: &Puppet) -> ServerConfig {
    let mut config = puppet("pup", script);
    config.disabled_tools = vec!["hidden".into()];
    config
}

#[tokio::test]
async fn l95_every_call_is_one_record_with_caller_decision_outcome_and_arguments() {
    let files = folder();
    let log = log_in(&files);
    let (host, _audit) = audited(&log, quick().server(pup(&several()))).await;
    host.register(LocalTool::new("local", "Here", async |_: NoArguments, _| Ok::<_, String>("here")))
        .unwrap();
    let cook = || CallOptions { caller: Some(CallerName::parse("cook").unwrap()), ..CallOptions::default() };
    let arguments = json!({"message": "hi"});
    assert!(host.call_with("pup_echo", Json::from(arguments.clone()), cook()).await.success);
    for tool in ["local", "pup_fails", "pup_refuses", "pup_hidden", "nowhere"] {
        host.call(tool, json!({})).await;
    }
    host.call("pup_echo", json!([])).await;
    host.call_tool("pup", "hidden", json!({}), CallOptions::default()).await;
    // Somebody who does not wait for the end.
    let given_up = host.call("pup_hangs", json!({}));
    assert!(tokio::time::timeout(std::time::Duration::from_millis(30), given_up).await.is_err());
    host.close().await;

    let calls = of_kind(&records(&log), "call");
    let told: Vec<_> =
        calls.iter().map(|r| [&r["tool"], &r["decision"], &r["outcome"]].map(Value::as_str)).collect();
    let (ok, allow, deny) = (Some("ok"), Some("allow"), Some("deny"));
    let expected = [
        [Some("echo"), allow, ok],
        [Some("local"), allow, ok],
        [Some("fails"), allow, Some("tool_failed")],
        [Some("refuses"), allow, Some("tool")],
        [Some("pup_hidden"), None, Some("unknown_tool")],
        [Some("nowhere"), None, Some("unknown_tool")],
        [Some("echo"), None, Some("arguments")],
        [Some("pup/hidden"), None, Some("unknown_tool")],
        [Some("hangs"), allow, Some("cancelled")],
    ];
    assert_eq!(told, expected, "{calls:#?} {deny:?}");
    let first = &calls[0];
    assert_eq!((&first["caller"], &first["server"]), (&json!("cook"), &json!("pup")));
    assert_eq!(first["arguments"]["shown"], arguments);
    assert_eq!(first["arguments"]["size"], arguments.to_string().len());
    assert_eq!(first["arguments"]["sha256"].as_str().unwrap().len(), 64);
    assert!(first["took_us"].as_u64().unwrap() > 0 && first["at"].as_u64().unwrap() > 1_700_000_000_000_000);
    assert_eq!(calls[2]["reason"], "the tide is out");
    let log = Log::open(&log).unwrap();
    assert_eq!(log.verify().unwrap().findings, []);
    let deny =
        Search { outcome: Some("tool_failed".into()), caller: Some("local".into()), ..Search::default() };
    assert_eq!(log.search(&deny).unwrap().len(), 1);
    let two = Search { kind: Some("call".into()), limit: Some(2), ..Search::default() };
    let two = log.search(&two).unwrap();
    assert!(two[0].seq < two[1].seq && two[1].json.contains("hangs"), "the newest, oldest first: {two:?}");
}

#[tokio::test]
async fn log_02_a_loss_is_on_record_though_somebody_was_quicker_to_connect_again() {
    let files = folder();
    let log = log_in(&files);
    let script = Puppet::new().plain_tool("echo").plain_tool("dies").on("tool:dies", [Step::Exit(3)]);
    let (host, audit) = audited(&log, quick().server(puppet("pup", &script))).await;
    for _ in 0..3 {
        assert!(host.call("pup_echo", json!({})).await.success);
        let berth = host.berth("pup").unwrap();
        // It has its turn at once when the connection ends, before anybody who is only woken then.
        let quick = tokio::spawn(async move {
            let over = |cx: &mut Context<'_>| match berth.connected() {
                true => {
                    cx.waker().wake_by_ref();
                    Poll::Pending
                }
                false => Poll::Ready(()),
            };
            std::future::poll_fn(over).await;
            berth.connect().await
        });
        assert_eq!(error(&host.call("pup_dies", json!({})).await).kind(), "unknown_outcome");
        soon("it is connected again", quick).await.unwrap().unwrap();
    }
    host.close().await;
    audit.flush().await.unwrap();
    let lost = of_kind(&records(&log), "lost");
    assert_eq!(lost.len(), 3, "{lost:#?}");
    assert!(lost.iter().all(|lost| lost["reason"].as_str().unwrap().contains("exit status 3")), "{lost:#?}");
}

#[tokio::test]
async fn log_02_launch_stop_loss_rejection_denial_and_question_are_one_record_each() {
    let files = folder();
    let log = log_in(&files);
    let script = Puppet::new()
        .plain_tool("echo")
        .tool(json!({"name": "odd", "inputSchema": {"type": "string"}}))
        .plain_tool("dies")
        .on("tool:dies", once(Step::Exit(3)));
    let refused = ServerConfig::stdio(ServerName::parse("shell").unwrap(), "/bin/sh", ["-c", "true"]);
    let (host, audit) = audited(&log, quick().server(puppet("pup", &script)).server(refused)).await;
    let person = Person::who_says([Answer::Allow(Reach::Tool), Answer::Decline]);
    let agent = host.session("agent").permission(Permission::Trusted).asker(person).start().unwrap();
    let nobody = host.session("nobody").start().unwrap();
    assert!(agent.call("pup_echo", json!({})).await.success);
    assert!(agent.call("pup_echo", json!({"again": 1})).await.success);
    assert_eq!(error(&agent.call("pup_dies", json!({})).await).kind(), "denied");
    assert_eq!(error(&nobody.call("pup_echo", json!({})).await).kind(), "denied");
    assert_eq!(error(&host.call("pup_dies", json!({})).await).kind(), "unknown_outcome");
    until("it is back", || host.berth("pup").unwrap().connected()).await;
    host.close().await;
    audit.flush().await.unwrap();

    let all = records(&log);
    let told = |kind: &str, server: &str| -> Vec<Value> {
        of_kind(&all, kind).into_iter().filter(|record| record["server"] == server).collect()
    };
    let launches = told("launch", "pup");
    assert_eq!(launches.len(), 2, "{launches:#?}");
    assert!(
        launches.iter().all(|l| l["decision"] == "allow" && l["reason"].as_str().unwrap().contains("puppet"))
    );
    let stops = told("stop", "pup");
    assert_eq!(stops.len(), 2, "{stops:#?}");
    assert!(stops[0]["reason"].as_str().unwrap().contains("exit status 3"), "{stops:#?}");
    assert_eq!(told("lost", "pup").len(), 1);
    assert_eq!(told("connect", "pup").len(), 2);
    let denied = told("launch", "shell");
    assert_eq!(denied.len(), 1, "{denied:#?}");
    assert_eq!(
        (&denied[0]["decision"], &denied[0]["outcome"]),
        (&json!("deny"), &json!("command_not_allowed"))
    );
    assert!(told("stop", "shell").is_empty() && told("connect", "shell").is_empty());
    let asked = told("ask", "pup");
    let answers: Vec<_> = asked.iter().map(|r| [&r["caller"], &r["tool"], &r["decision"]]).collect();
    assert_eq!(answers, [["agent", "echo", "allow"], ["agent", "dies", "deny"]], "{asked:#?}");
    assert!(asked[0]["session"].as_u64().is_some(), "{asked:#?}");
    let rejected = told("reject", "pup");
    assert!(!rejected.is_empty() && rejected.iter().all(|r| r["tool"] == "odd"), "{rejected:#?}");
    let denied: Vec<_> =
        of_kind(&all, "call").into_iter().filter(|call| call["decision"] == "deny").collect();
    assert_eq!(denied.len(), 2, "{denied:#?}");
    assert!(denied[0]["rule"].as_str().unwrap().contains("consent"), "{denied:#?}");
    assert!(denied[1]["rule"].as_str().unwrap().contains("it was given none"), "{denied:#?}");
}

#[tokio::test]
async fn log_03_no_secret_is_on_record() {
    let files = folder();
    let log = log_in(&files);
    let canary = "canary-5f3a9c1e";
    let echoed =
        json!({"content": [{"type": "text", "text": format!("it failed with {canary}")}], "isError": true});
    let script = Puppet::new().plain_tool("echo").plain_tool("fails").on("tool:fails", [Step::Reply(echoed)]);
    let mut config = puppet("pup", &script);
    let wharf::config::Transport::Stdio(stdio) = &mut config.transport else { panic!() };
    stdio.env.insert("PUP_KEY".into(), Secret::new(canary));
    let (host, audit) = audited(&log, quick().server(config)).await;
    let arguments =
        json!({"where": format!("https://x.test/?k={canary}"), "password": "hunter-7781", "open": "sea"});
    assert!(host.call("pup_echo", arguments).await.success);
    host.call("pup_fails", json!({"token": "tok-99817263"})).await;
    host.close().await;
    audit.flush().await.unwrap();
    let mut bytes = String::new();
    for file in std::fs::read_dir(log.parent().unwrap()).unwrap() {
        bytes.push_str(&String::from_utf8_lossy(&std::fs::read(file.unwrap().path()).unwrap()));
    }
    assert!(bytes.contains("sea"), "what is no secret is there");
    for secret in [canary, "hunter-7781", "tok-99817263"] {
        assert!(!bytes.contains(secret), "{secret}");
    }
}

#[tokio::test]
async fn log_05_large_arguments_are_on_record_by_digest_and_size() {
    let files = folder();
    let log = log_in(&files);
    let (host, _audit) = audited(&log, quick().server(pup(&several()))).await;
    let limit = wharf::event::LARGEST_SHOWN;
    let frame = json!({"text": ""}).to_string().len();
    for size in [limit - 1, limit, limit + 1, 4 << 20] {
        let text = "x".repeat(size - frame);
        assert!(host.call("pup_echo", json!({"text": text})).await.success);
    }
    host.close().await;
    let calls = of_kind(&records(&log), "call");
    let shown: Vec<bool> = calls.iter().map(|call| call["arguments"].get("shown").is_some()).collect();
    assert_eq!(shown, [true, true, false, false]);
    assert_eq!(calls[3]["arguments"]["size"], 4 << 20);
    assert_eq!(calls[3]["arguments"]["sha256"].as_str().unwrap().len(), 64);
    assert!(
        log.metadata().unwrap().len() + at(&files, "state/audit.db-wal").metadata().map_or(0, |m| m.len())
            < 1 << 20
    );
}

#[tokio::test]
async fn exh_05_where_the_log_cannot_be_written_nothing_runs_and_nothing_crashes() {
    let files = folder();
    let log = log_in(&files);
    let ran = at(&files, "ran");
    let script = Puppet::new().plain_tool("echo").on("tool:echo", [Step::Count(ran.clone()), Step::Honest]);
    let (host, audit) = audited(&log, quick().server(puppet("pup", &script))).await;
    assert!(host.call("pup_echo", json!({})).await.success);
    audit.flush().await.unwrap();

    // The folder goes away, and a file is put in its place: nothing can be written there.
    let away = at(&files, "away");
    std::fs::rename(log.parent().unwrap(), &away).unwrap();
    std::fs::write(log.parent().unwrap(), "in the way").unwrap();
    assert_eq!(audit.flush().await.unwrap_err().kind(), "audit");
    let before = effects(&ran);
    let refused = soon("a refusal", host.call("pup_echo", json!({}))).await;
    let why = error(&refused);
    assert_eq!((why.kind(), why.side()), ("audit", wharf::Side::Us));
    assert!(why.to_string().contains("taken away") || why.to_string().contains("directory"), "{why}");
    assert!(why.hint().unwrap().contains("wharf audit verify"), "{why}");
    assert_eq!(
        error(&host.call_tool("pup", "echo", json!({}), CallOptions::default()).await).kind(),
        "audit"
    );
    assert_eq!(
        host.berth("pup").unwrap().connect().await.map(drop).err().map(|e| e.kind()),
        None,
        "it lives"
    );
    assert_eq!(effects(&ran), before, "nothing ran");

    // It is back: calls go on, and what was refused meanwhile is on record.
    std::fs::remove_file(log.parent().unwrap()).unwrap();
    std::fs::rename(&away, log.parent().unwrap()).unwrap();
    until("it can be written again", || audit.trail().ready().is_ok()).await;
    assert!(host.call("pup_echo", json!({})).await.success);
    host.close().await;
    let calls = of_kind(&records(&log), "call");
    let outcomes: Vec<_> = calls.iter().map(|call| call["outcome"].as_str().unwrap()).collect();
    assert_eq!(outcomes, ["ok", "audit", "audit", "ok"]);
    assert_eq!(Log::open(&log).unwrap().verify().unwrap().findings, []);
}

#[tokio::test]
async fn exh_05_a_log_that_cannot_be_opened_keeps_the_host_from_starting() {
    let files = folder();
    std::fs::write(at(&files, "state"), "in the way").unwrap();
    let refused = Audit::open(log_in(&files), AuditOptions::default()).unwrap_err();
    assert!(refused.to_string().contains("cannot be written") && refused.hint().unwrap().contains("[audit]"));
    std::fs::remove_file(at(&files, "state")).unwrap();
    let audit = Audit::open(log_in(&files), AuditOptions::default()).unwrap();
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(audit.path().parent().unwrap()), 0o700);
    for file in std::fs::read_dir(audit.path().parent().unwrap()).unwrap() {
        assert_eq!(mode(&file.unwrap().path()), 0o600);
    }
}

#[tokio::test]
async fn l95_a_call_that_is_under_way_is_on_record_before_it_ends() {
    for in_haste in [true, false] {
        let files = folder();
        let (log, go, seen) = (log_in(&files), at(&files, "go"), at(&files, "seen"));
        let script = Puppet::new()
            .plain_tool("echo")
            .log(&seen)
            .on("tool:echo", [Step::WaitFor(go.clone()), Step::Honest]);
        let (host, audit) = audited(&log, quick().server(puppet("pup", &script))).await;
        let calling = tokio::spawn({
            let host = host.clone();
            async move { host.call("pup_echo", json!({})).await }
        });
        until("it was sent", || count(&received(&seen), "tools/call") == 1).await;
        let wanted = Search { kind: Some("begin".into()), ..Search::default() };
        let begun = || Log::open(&log).unwrap().search(&wanted).unwrap();
        if in_haste {
            audit.flush().await.unwrap();
        } else {
            until("it is on record by itself", || !begun().is_empty()).await;
        }
        let [begun] = &begun()[..] else { panic!("not one") };
        std::fs::write(&go, "").unwrap();
        assert!(calling.await.unwrap().success);
        host.close().await;
        let calls = of_kind(&records(&log), "call");
        assert_eq!(calls.len(), 1);
        assert_eq!(calls[0]["began"], begun.seq);
    }
}

#[tokio::test]
async fn log_02_an_address_that_may_not_be_reached_is_one_denial() {
    let files = folder();
    let log = log_in(&files);
    let server = |name: &str, url: &str| {
        let mut config = ServerConfig::http(ServerName::parse(name).unwrap(), url).unwrap();
        config.origin = wharf::config::Origin::Given;
        config
    };
    let elsewhere = HttpPuppet::start(|_| async {
        Reply::Redirect(307, "http://169.254.169.254/latest/meta-data".into())
    });
    let servers = [server("meta", "http://169.254.169.254/mcp"), server("leads", &elsewhere.url())];
    let (host, _audit) = audited(&log, quick().servers(servers)).await;
    for name in ["meta", "leads"] {
        assert_eq!(host.tools_of(name).await.unwrap_err().kind(), "denied");
    }
    host.close().await;
    let refused = of_kind(&records(&log), "connect");
    let told: Vec<_> = refused.iter().map(|r| [&r["server"], &r["decision"], &r["rule"]]).collect();
    assert_eq!(
        told,
        [
            ["meta", "deny", "the address rules: it is a cloud metadata address"],
            ["leads", "deny", "the address rules"]
        ],
        "{refused:#?}"
    );
}
