//! Which era a server is spoken with, where its first answer is odd. The same over HTTP is in `http`.

use serde_json::json;
use wharf::mcp::Era as Spoken;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{host, puppet};

fn refuses(supported: &[&str]) -> Vec<Step> {
    let data = Some(json!({"supported": supported, "requested": "2026-07-28"}));
    vec![Step::ReplyError { code: -32022, message: "Unsupported protocol version".into(), data }]
}

#[tokio::test]
async fn l31_an_empty_answer_to_the_probe_means_legacy() {
    let script = Puppet::of(Era::Legacy).on("server/discover", [Step::Reply(json!({}))]);
    let host = host([puppet("pup", &script)]).await;
    let pup = host.ensemble("pup").await.unwrap();
    assert_eq!(pup.info().revision.era(), Spoken::Legacy);
    assert!(pup.call("echo", json!({"message": "hello"})).await.success);
    host.close().await;
}

#[tokio::test]
async fn l31_a_server_that_names_a_modern_revision_is_asked_in_it_once_more() {
    let turns = Step::Turns(vec![refuses(&["2026-07-28", "2025-11-25"]), vec![Step::Honest]]);
    let script = Puppet::of(Era::Both).on("server/discover", [turns]);
    let host = host([puppet("pup", &script)]).await;
    let pup = host.ensemble("pup").await.unwrap();
    assert_eq!(pup.info().revision.era(), Spoken::Modern);
    assert!(pup.call("echo", json!({"message": "hello"})).await.success);
    host.close().await;
}

#[tokio::test]
async fn l31_a_server_that_names_only_legacy_revisions_is_legacy() {
    let script = Puppet::of(Era::Legacy).on("server/discover", refuses(&["2025-11-25"]));
    let host = host([puppet("pup", &script)]).await;
    assert_eq!(host.ensemble("pup").await.unwrap().info().revision.era(), Spoken::Legacy);
    host.close().await;
}

#[tokio::test]
async fn l31_a_server_that_refuses_what_it_offers_is_not_asked_for_ever() {
    let script = Puppet::of(Era::Both).on("server/discover", refuses(&["2026-07-28"]));
    let host = host([puppet("pup", &script)]).await;
    let error = host.tools_of("pup").await.unwrap_err();
    assert_eq!(error.kind(), "protocol");
    assert!(error.to_string().contains("refuses the revisions that it offers itself"), "{error}");
    host.close().await;
}
