//! Both eras of the protocol, every revision, and servers that make it hard to tell which they speak.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use wharf::ask::{Answer, Answered, Asker, Offers, Question};
use wharf::config::ServerConfig;
use wharf::connect::{EraStore, Verdict};
use wharf::mcp::Era as Spoken;
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::wire::Json;
use wharf::{CallOptions, Host};
use wharf_testkit::{Crash, Era, Puppet, Step, rmcp_peer_path};

use crate::support::{at, count, echo, effects, error, folder, pup, puppet, quick, received, soon};

/// Where a test can see and set what is remembered.
#[derive(Clone, Default)]
struct Remembered(Arc<Mutex<HashMap<String, Verdict>>>);

impl EraStore for Remembered {
    fn get(&self, key: &str) -> Option<Verdict> {
        self.0.lock().unwrap().get(key).copied()
    }

    fn put(&self, key: &str, verdict: Verdict) {
        self.0.lock().unwrap().insert(key.to_owned(), verdict);
    }
}

impl Remembered {
    fn eras(&self) -> Vec<Spoken> {
        self.0.lock().unwrap().values().map(|verdict| verdict.era).collect()
    }
}

async fn remembering(script: &Puppet, eras: &Remembered) -> Host {
    let mut config = puppet("pup", script);
    config.start_timeout = Duration::from_secs(3);
    quick().eras(Arc::new(eras.clone())).server(config).start().await.unwrap()
}

#[tokio::test]
async fn l31_each_era_is_spoken_as_its_server_speaks_it() {
    for (era, revision, verdict) in [
        (Era::Legacy, "2025-11-25", Spoken::Legacy),
        (Era::Modern, "2026-07-28", Spoken::Modern),
        (Era::Both, "2026-07-28", Spoken::Modern),
        (Era::DiesOnDiscover, "2025-11-25", Spoken::Legacy),
    ] {
        let files = folder();
        let log = at(&files, "log");
        let eras = Remembered::default();
        let host = remembering(&Puppet::of(era).log(&log), &eras).await;
        assert!(echo(&host).await.success, "{era:?}");
        let connection = host.berth("pup").unwrap().connection().await.unwrap();
        assert_eq!(connection.info().revision.as_str(), revision);
        assert_eq!(connection.info().implementation.name.raw(), "puppet");
        assert_eq!(eras.eras(), [verdict], "{era:?}");
        let modern = verdict == Spoken::Modern;
        let messages = received(&log);
        assert_eq!(count(&messages, "initialize"), usize::from(!modern), "{era:?}");
        assert_eq!(count(&messages, "notifications/initialized"), usize::from(!modern));
        let call = messages.iter().find(|m| m["method"] == "tools/call").unwrap();
        let version = &call["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"];
        assert_eq!(*version, if modern { json!("2026-07-28") } else { Value::Null });
        host.close().await;
    }
}

#[tokio::test]
async fn l31_a_legacy_server_is_probed_once_and_remembered() {
    for era in [Era::Legacy, Era::DiesOnDiscover] {
        let files = folder();
        let (log, starts) = (at(&files, "log"), at(&files, "starts"));
        let crash = Crash { file: starts.clone(), times: 0, code: 0 };
        let eras = Remembered::default();
        let host = remembering(&Puppet::of(era).log(&log).with(|s| s.crash = Some(crash)), &eras).await;
        let berth = host.berth("pup").unwrap();
        berth.connect().await.unwrap();
        let first = effects(&starts);
        assert_eq!(
            first,
            if era == Era::Legacy { 1 } else { 2 },
            "one that left at the probe is started anew"
        );
        for round in 1..4 {
            berth.disconnect().await;
            berth.connect().await.unwrap();
            assert_eq!(effects(&starts), first + round, "{era:?}");
        }
        assert_eq!(count(&received(&log), "server/discover"), 1, "{era:?}");
        host.close().await;
    }
}

#[tokio::test]
async fn l31_what_is_remembered_too_long_or_wrongly_is_found_out_anew() {
    let files = folder();
    let log = at(&files, "log");
    let script = Puppet::of(Era::Legacy).log(&log);
    let eras = Remembered::default();
    let host = remembering(&script, &eras).await;
    host.berth("pup").unwrap().connect().await.unwrap();
    host.close().await;
    let yesterday = SystemTime::now() - Duration::from_secs(25 * 60 * 60);
    eras.0.lock().unwrap().values_mut().for_each(|verdict| verdict.at = yesterday);
    host.berth("pup").unwrap().connect().await.unwrap();
    assert_eq!(count(&received(&log), "server/discover"), 2, "a day is long");
    host.close().await;

    // It was updated meanwhile: the handshake is refused, so it is asked which era it speaks.
    let eras = Remembered::default();
    let host = remembering(&Puppet::of(Era::Modern), &eras).await;
    host.berth("pup").unwrap().connect().await.unwrap();
    host.close().await;
    eras.0.lock().unwrap().values_mut().for_each(|verdict| verdict.era = Spoken::Legacy);
    let connection = host.berth("pup").unwrap().connect().await.unwrap();
    assert_eq!(connection.info().revision.as_str(), "2026-07-28");
    assert_eq!(eras.eras(), [Spoken::Modern]);
    host.close().await;
}

#[tokio::test]
async fn l31_an_inconclusive_probe_is_not_remembered() {
    let quiet = Puppet::of(Era::Legacy).on("server/discover", [Step::Hang]);
    let gibberish =
        Puppet::of(Era::Legacy).on("server/discover", [Step::Raw(r#"{"jsonrpc":"2.0","id":$ID}"#.into())]);
    for script in [quiet, gibberish] {
        let eras = Remembered::default();
        let host = remembering(&script, &eras).await;
        assert!(echo(&host).await.success);
        assert_eq!(eras.eras(), []);
        host.close().await;
    }
    for script in [Puppet::of(Era::Silent), Puppet::of(Era::Legacy).on("initialize", [Step::Exit(1)])] {
        let eras = Remembered::default();
        let dies = script.script.era == Era::Legacy;
        let host = remembering(&script, &eras).await;
        let failure = soon("the start", host.berth("pup").unwrap().connect()).await.unwrap_err();
        let word = if dies { "exit status 1" } else { "not ready within 3s" };
        assert!(failure.to_string().contains(word), "{failure}");
        assert_eq!(
            eras.eras().len(),
            usize::from(dies),
            "an error to the probe is an answer; silence is none"
        );
        host.close().await;
    }
}

#[tokio::test]
async fn l31_every_legacy_revision_is_agreed_on_and_an_unknown_one_is_refused() {
    for version in ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"] {
        let host = pup(&Puppet::of(Era::Legacy).with(|s| s.version = Some(version.into()))).await;
        assert!(echo(&host).await.success, "{version}");
        let connection = host.berth("pup").unwrap().connection().await.unwrap();
        assert_eq!(connection.info().revision.as_str(), version);
        host.close().await;
    }
    for version in ["1999-01-01", "2026-07-28", "", "2025-11-25\u{1b}"] {
        let host = pup(&Puppet::of(Era::Legacy).with(|s| s.version = Some(version.into()))).await;
        let failure = host.berth("pup").unwrap().connect().await.unwrap_err();
        let said = failure.to_string();
        assert!(said.contains("no revision of the protocol that Wharf knows"), "{version}: {said}");
        assert!(!said.contains('\u{1b}') && !failure.is_retryable());
        host.close().await;
    }
    let future = json!({"supportedVersions": ["2031-01-01"], "capabilities": {}});
    let host = pup(&Puppet::of(Era::Modern).on("server/discover", [Step::Reply(future)])).await;
    let failure = host.berth("pup").unwrap().connect().await.unwrap_err().to_string();
    assert!(failure.contains("2031-01-01"), "{failure}");
    host.close().await;
}

#[tokio::test]
async fn l31_batches_are_taken_where_the_revision_has_them() {
    let batch = r#"[{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}},{"jsonrpc":"2.0","id":$ID,"result":{"content":[{"type":"text","text":"both"}]}}]"#;
    for (version, taken) in [("2025-03-26", true), ("2025-06-18", false), ("2024-11-05", false)] {
        let script = Puppet::of(Era::Legacy)
            .with(|s| s.version = Some(version.into()))
            .on("tool:echo", [Step::Raw(batch.into())]);
        let host = pup(&script).await;
        let outcome = echo(&host).await;
        assert_eq!(outcome.success, taken, "{version}: {outcome:?}");
        if !taken {
            assert_eq!(error(&outcome).kind(), "protocol");
        }
        host.close().await;
    }
}

/// Fills every form with a name.
struct Named;

impl Asker for Named {
    fn offers(&self) -> Offers {
        Offers { forms: true, ..Offers::default() }
    }

    fn ask(&self, _: &ServerName, question: Question) -> Answered {
        let answer = match question {
            Question::Form(form) if form.fields.contains_key("name") => {
                Answer::Accept(Json::from(json!({"name": "Ada"})))
            }
            _ => Answer::Decline,
        };
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::test]
async fn l31_a_server_of_the_official_sdk_is_spoken_with_in_both_eras() {
    let program = rmcp_peer_path().display().to_string();
    let config =
        ServerConfig::stdio(ServerName::parse("peer").unwrap(), program.clone(), Vec::<String>::new());
    for era in [Spoken::Modern, Spoken::Legacy] {
        let eras = Remembered::default();
        let host = Host::builder()
            .policy(Policy::strict().with_sandbox(false).with_commands([program.clone()]))
            .environment(std::env::vars())
            .eras(Arc::new(eras.clone()))
            .asker(Named)
            .server(config.clone())
            .start()
            .await
            .unwrap();
        let connection = host.berth("peer").unwrap().connect().await.unwrap();
        assert_eq!(
            connection.info().revision.era(),
            Spoken::Modern,
            "it speaks both, so the newer is spoken"
        );
        if era == Spoken::Legacy {
            host.close().await;
            eras.0.lock().unwrap().values_mut().for_each(|verdict| verdict.era = Spoken::Legacy);
        }
        let listing = host.tools().await;
        assert!(listing.failed.is_empty() && listing.rejected.is_empty(), "{listing:?}");
        let mut names: Vec<_> =
            listing.snapshot.tools().iter().map(|r| r.tool.name.as_str().to_owned()).collect();
        names.sort();
        assert_eq!(names, ["add", "ask", "echo", "progress"]);
        let connection = host.berth("peer").unwrap().connection().await.unwrap();
        assert_eq!(connection.info().revision.era(), era);

        assert_eq!(host.call("peer_add", json!({"a": 2, "b": 40})).await.to_text(), "42");
        assert_eq!(error(&host.call("peer_add", json!({"a": "two"})).await).kind(), "arguments");
        assert_eq!(host.call("peer_ask", json!({})).await.to_text(), "Hello, Ada");
        let mut steps = Vec::new();
        let mut listen = |step: wharf::connect::Progress| steps.push((step.progress, step.total));
        let options = CallOptions { on_progress: Some(&mut listen), ..CallOptions::default() };
        let outcome = host.call_with("peer_progress", Json::from(json!({"steps": 3})), options).await;
        assert_eq!(outcome.to_text(), "3 steps");
        assert_eq!(steps, [(1.0, Some(3.0)), (2.0, Some(3.0)), (3.0, Some(3.0))]);
        host.close().await;
    }
}
