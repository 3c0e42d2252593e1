//! Calls that somebody must allow and nobody is there to be asked about: they wait in a queue that outlives everything.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use wharf::config::CallerRules;
use wharf::policy::{Permission, Policy, ToolPattern};
use wharf::store::{ApprovalOptions, Approvals, Audit, AuditOptions, Reaching, Said};
use wharf::{Error, Host, Outcome, Session};
use wharf_testkit::{Puppet, puppet_path};

use crate::audit::{log_in, of_kind, records};
use crate::support::{at, count, error, folder, puppet, quick, received, soon, until};

/// A queue in a file, as another process sees it too.
pub(crate) fn queue(file: &Path, options: ApprovalOptions) -> Approvals {
    Approvals::new(file, options).unwrap()
}

/// A host whose calls wait in this queue, and what reaches its server.
async fn host(file: &Path, options: ApprovalOptions, seen: &Path) -> Host {
    let script = Puppet::new().plain_tool("push").plain_tool("pull").plain_tool("log").log(seen);
    quick().server(puppet("git", &script)).approvals(queue(file, options)).start().await.unwrap()
}

/// A caller who is asked about `push` and `pull`.
fn caller(host: &Host, name: &str) -> Session {
    let rules = CallerRules::new(["git"], []).unwrap().asking(["git/pu*"]).unwrap();
    host.session(name).permission(Permission::Yolo).rules(Arc::new(rules)).start().unwrap()
}

/// The number by which a call waits.
fn waits(outcome: &Outcome) -> u64 {
    match error(outcome) {
        Error::Unapproved { id, .. } => *id,
        other => panic!("{other:?}"),
    }
}

struct Scene {
    _files: tempfile::TempDir,
    file: PathBuf,
    seen: PathBuf,
}

fn scene() -> Scene {
    let files = folder();
    Scene { file: log_in(&files), seen: at(&files, "seen"), _files: files }
}

impl Scene {
    fn sent(&self) -> usize {
        count(&received(&self.seen), "tools/call")
    }
}

#[tokio::test]
async fn l22_a_call_waits_for_a_yes_and_runs_once() {
    let scene = scene();
    let host = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
    let (ann, desk) = (caller(&host, "ann"), queue(&scene.file, ApprovalOptions::default()));
    assert!(ann.call("git_log", json!({})).await.success, "nobody need be asked about this");
    let arguments = json!({"to": "main", "force": true});
    let refused = ann.call("git_push", arguments.clone()).await;
    let id = waits(&refused);
    let why = error(&refused);
    assert!(
        why.to_string().contains(&id.to_string())
            && why.hint().unwrap().contains(&format!("wharf approve {id}"))
    );
    assert_eq!(scene.sent(), 1, "nothing was sent");
    assert_eq!(
        waits(&ann.call("git_push", arguments.clone()).await),
        id,
        "asked once, however often it is tried"
    );

    let waiting = desk.waiting().unwrap();
    let [one] = &waiting[..] else { panic!("{waiting:?}") };
    assert_eq!((one.id, &*one.caller, &*one.server, &*one.tool), (id, "ann", "git", "push"));
    assert_eq!(serde_json::from_str::<Value>(&one.arguments).unwrap(), arguments, "exactly these");
    assert!(desk.answer(id, Said::Allow(Reaching::Once), None).unwrap());
    assert!(!desk.answer(id, Said::Deny, None).unwrap(), "answered once");
    // The order of members makes no other call.
    assert!(ann.call("git_push", json!({"force": true, "to": "main"})).await.success);
    assert_eq!(scene.sent(), 2);
    assert_ne!(waits(&ann.call("git_push", arguments).await), id, "a yes is used up");
    assert_eq!(scene.sent(), 2);
    host.close().await;
}

#[tokio::test]
async fn gwy_15_a_yes_is_one_callers_and_one_calls() {
    let scene = scene();
    let host = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
    let (ann, bob) = (caller(&host, "ann"), caller(&host, "bob"));
    let desk = queue(&scene.file, ApprovalOptions::default());
    let main = json!({"to": "main"});
    let (of_ann, of_bob) =
        (waits(&ann.call("git_push", main.clone()).await), waits(&bob.call("git_push", main.clone()).await));
    assert_ne!(of_ann, of_bob);
    assert!(desk.answer(of_ann, Said::Allow(Reaching::Once), None).unwrap());
    assert_eq!(waits(&bob.call("git_push", main.clone()).await), of_bob, "another caller");
    waits(&ann.call("git_push", json!({"to": "prod"})).await);
    waits(&ann.call("git_push", json!({"to": "main", "force": true})).await);
    waits(&ann.call("git_pull", main.clone()).await);
    assert_eq!(scene.sent(), 0);
    assert!(ann.call("git_push", main.clone()).await.success, "the call that was meant");
    waits(&ann.call("git_push", main.clone()).await);

    // A yes is to the server as it is configured: another under its name has none.
    assert!(desk.answer(of_bob, Said::Allow(Reaching::Tool), None).unwrap());
    assert!(bob.call("git_push", main.clone()).await.success);
    let mut other = puppet("git", &Puppet::new().plain_tool("push").plain_tool("also"));
    other.timeout = Duration::from_secs(7);
    host.remove_server("git").await;
    host.add_server(other);
    host.tools().await;
    waits(&bob.call("git_push", main).await);
    host.close().await;
}

#[tokio::test]
async fn l22_a_yes_of_the_queue_reaches_as_far_as_was_said() {
    let calls: [(&str, Value); 5] = [
        ("git_push", json!({"to": "main", "tags": ["a"]})),
        ("git_push", json!({"tags": ["b", "c"], "to": "prod"})),
        ("git_push", json!({"to": "main", "force": true})),
        ("git_push", json!({"to": ["main"], "tags": ["a"]})),
        ("git_pull", json!({})),
    ];
    for (reach, allowed) in [
        (Reaching::Once, &[true, false, false, false, false]),
        (Reaching::Shape, &[true, true, false, false, false]),
        (Reaching::Tool, &[true, true, true, true, false]),
        (Reaching::Session, &[true, true, true, true, true]),
    ] {
        let scene = scene();
        let host = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
        let ann = caller(&host, "ann");
        let id = waits(&ann.call("git_push", calls[0].1.clone()).await);
        let desk = queue(&scene.file, ApprovalOptions::default());
        assert!(desk.answer(id, Said::Allow(reach), None).unwrap());
        for ((tool, arguments), allowed) in calls.iter().zip(allowed) {
            let done = ann.call(tool, arguments.clone()).await;
            assert_eq!(done.success, *allowed, "{reach:?}: {tool} {arguments}: {done:?}");
        }
        // Another session of the same caller has what is the caller's, and not what is the session's.
        let again = caller(&host, "ann").call("git_push", calls[0].1.clone()).await;
        assert_eq!(again.success, matches!(reach, Reaching::Shape | Reaching::Tool), "{reach:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l22_the_queue_outlives_the_host() {
    let scene = scene();
    let first = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
    let id = waits(&caller(&first, "ann").call("git_push", json!({})).await);
    first.close().await;
    drop(first);
    let desk = queue(&scene.file, ApprovalOptions::default());
    assert!(desk.answer(id, Said::Allow(Reaching::Once), None).unwrap());
    let second = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
    assert!(caller(&second, "ann").call("git_push", json!({})).await.success);
    second.close().await;
}

#[tokio::test]
async fn l22_questions_and_answers_expire_and_a_no_stays_a_no() {
    let scene = scene();
    let short = ApprovalOptions { expires: Duration::from_millis(1), ..ApprovalOptions::default() };
    let host = host(&scene.file, ApprovalOptions::default(), &scene.seen).await;
    let (ann, desk) = (caller(&host, "ann"), queue(&scene.file, short.clone()));
    let id = waits(&ann.call("git_push", json!({})).await);
    assert!(desk.answer(id, Said::Allow(Reaching::Tool), Some(Duration::from_micros(1))).unwrap());
    let next = waits(&ann.call("git_push", json!({})).await);
    assert_ne!(next, id, "the yes was too old");
    assert!(desk.answer(next, Said::Deny, Some(Duration::from_secs(60))).unwrap());
    for _ in 0..2 {
        let refused = ann.call("git_push", json!({})).await;
        assert!(
            matches!(error(&refused), Error::Denied { rule, .. } if rule.contains(&next.to_string())),
            "{refused:?}"
        );
    }
    waits(&ann.call("git_push", json!({"other": 1})).await);
    assert_eq!(scene.sent(), 0);
    host.close().await;

    let hasty = self::host(&scene.file, short, &scene.seen).await;
    let id = waits(&caller(&hasty, "eve").call("git_push", json!({})).await);
    until("the question is too old", || desk.waiting().unwrap().iter().all(|waiting| waiting.id != id)).await;
    assert!(!desk.answer(id, Said::Allow(Reaching::Once), None).unwrap(), "the question was too old");
    hasty.close().await;
}

#[tokio::test]
async fn l22_a_call_may_wait_for_its_answer() {
    for (said, runs) in [(Said::Allow(Reaching::Once), true), (Said::Deny, false)] {
        let scene = scene();
        let options = ApprovalOptions { wait: Duration::from_secs(60), ..ApprovalOptions::default() };
        let host = host(&scene.file, options, &scene.seen).await;
        let ann = caller(&host, "ann");
        let calling = tokio::spawn(async move { ann.call("git_push", json!({})).await });
        let desk = queue(&scene.file, ApprovalOptions::default());
        let id = soon("a question", async {
            loop {
                if let Some(waiting) = desk.waiting().unwrap_or_default().first() {
                    break waiting.id;
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert!(desk.answer(id, said, None).unwrap());
        let done = soon("the call", calling).await.unwrap();
        assert_eq!(done.success, runs, "{done:?}");
        assert_eq!(scene.sent(), usize::from(runs));
        host.close().await;
    }
}

#[tokio::test]
async fn l22_policy_asks_for_everyone_and_each_answer_is_on_record() {
    let scene = scene();
    let audit = Audit::open(&scene.file, AuditOptions::default()).unwrap();
    let policy = Policy::strict().with_sandbox(false).with_commands([puppet_path().display().to_string()]);
    let policy = policy.with_asked([ToolPattern::parse("*/push").unwrap()]);
    let script = Puppet::new().plain_tool("push").log(&scene.seen);
    let host = quick().server(puppet("git", &script)).policy(policy).audit(&audit);
    let host = host.approvals(queue(&scene.file, ApprovalOptions::default())).start().await.unwrap();
    assert!(host.call("git_push", json!({})).await.success, "the program itself is nobody to ask about");
    let ann = host.session("ann").permission(Permission::Yolo).start().unwrap();
    let id = waits(&ann.call("git_push", json!({"password": "hunter-2231"})).await);
    let desk = queue(&scene.file, ApprovalOptions::default());
    assert!(desk.waiting().unwrap()[0].arguments.contains("hunter-2231"), "who decides sees what is sent");
    assert!(desk.answer(id, Said::Allow(Reaching::Once), None).unwrap());
    assert!(ann.call("git_push", json!({"password": "hunter-2231"})).await.success);
    host.close().await;
    let all = records(&scene.file);
    let asked: Vec<_> =
        of_kind(&all, "ask").iter().map(|r| (r["decision"].clone(), r["rule"].clone())).collect();
    let rule = json!(format!("approval {id}"));
    assert_eq!(asked, [(Value::Null, rule.clone()), (json!("allow"), rule.clone())]);
    let calls: Vec<_> =
        of_kind(&all, "call").iter().map(|r| (r["outcome"].clone(), r["rule"].clone())).collect();
    assert_eq!(calls[1..], [(json!("unapproved"), Value::Null), (json!("ok"), rule)]);
    assert!(!std::fs::read_to_string(&scene.seen).unwrap().is_empty());
    assert!(all.iter().all(|record| !record.to_string().contains("hunter-2231")), "and the record does not");
}
