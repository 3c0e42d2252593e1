//! What cannot be seen from outside: a route that was given to one scope, followed in another; who has how many
//! connections.

use std::sync::Arc;

use serde_json::json;
use tokio::sync::Semaphore;

use super::lanes::Hold;
use super::places::{LANES, SHARE};
use super::{CallOptions, Host, LocalTool, NoArguments, Session};
use crate::config::ServerConfig;
use crate::names::{CallerName, ServerName};
use crate::policy::Permission;
use crate::wire::Json;

fn tool(name: &str) -> LocalTool {
    LocalTool::new(name, "Says where it is", async |_: NoArguments, _| Ok::<_, String>("here"))
}

fn session(host: &Host, name: &str) -> Session {
    host.session(name).permission(Permission::Yolo).start().unwrap()
}

/// The kind of error of a call along the route of that name in one scope, made in another; empty if it succeeds.
async fn followed(from: &Host, name: &str, to: &Host) -> &'static str {
    let route = from.scope.snapshot().route(name).unwrap().clone();
    let outcome = to.run(&route, &Json::from(json!({})), CallOptions::default()).await;
    outcome.error.as_deref().map_or("", crate::Error::kind)
}

#[tokio::test]
async fn l63_a_private_route_leads_nowhere_in_another_scope() {
    let host = Host::builder().start().await.unwrap();
    let (a, b) = (session(&host, "a"), session(&host, "b"));
    host.register(tool("shared")).unwrap();
    // The same name in both: only the owner tells them apart.
    a.register(tool("own")).unwrap();
    b.register(tool("own")).unwrap();
    host.register(tool("own")).unwrap();
    assert_eq!(followed(&a, "own", &a).await, "");
    for (from, to) in [(&*a, &*b), (&*b, &*a), (&*a, &host)] {
        assert_eq!(followed(from, "own", to).await, "unknown_tool");
    }
    for (from, to) in [(&host, &*a), (&*a, &*b), (&*b, &host)] {
        assert_eq!(followed(from, "shared", to).await, "", "what is shared is everyone's");
    }
    let late = a.scope.snapshot().route("own").unwrap().clone();
    a.close().await;
    let outcome = a.run(&late, &Json::from(json!({})), CallOptions::default()).await;
    assert_eq!(outcome.error.unwrap().kind(), "cancelled");
}

#[tokio::test]
async fn l21_a_route_is_judged_again_when_it_is_followed() {
    let host = Host::builder().start().await.unwrap();
    host.register(tool("shared")).unwrap();
    let nobody = host.session("nobody").start().unwrap();
    assert_eq!(followed(&host, "shared", &nobody).await, "denied", "however it came by the route");
}

/// Lanes of a caller to a server that is never started, each held.
fn lanes(of: &Session, number: usize) -> Vec<crate::Result<Hold>> {
    let name = ServerName::parse("never").unwrap();
    let config = ServerConfig::stdio(name, "/nowhere", Vec::<String>::new());
    (0..number).map(|_| of.scope.lanes.lane(of.scope.pool.unlisted(&config)).hold()).collect()
}

fn kinds(held: &[crate::Result<Hold>]) -> Vec<&'static str> {
    held.iter().map(|held| held.as_ref().map_or_else(crate::Error::kind, |_| "")).collect()
}

#[tokio::test]
async fn l33_a_caller_has_its_share_of_connections_and_the_others_have_theirs() {
    let host = Host::builder().start().await.unwrap();
    let bob = session(&host, "bob");
    let used = lanes(&bob, SHARE + 1);
    assert_eq!(kinds(&used[SHARE - 1..]), ["", "overloaded"], "at the share, and beyond it");
    let Err(crate::Error::Overloaded { retry_after, .. }) = &used[SHARE] else { panic!("{used:?}") };
    assert!(!retry_after.is_zero(), "it says when to come again");
    // Whatever it says of itself is another scope of the same caller.
    assert_eq!(kinds(&lanes(&session(&host, "bob"), 1)), ["overloaded"]);
    let ann = session(&host, "ann");
    assert_eq!(kinds(&lanes(&ann, SHARE)), [""; SHARE]);
    // One of its own that nobody uses gives way.
    let idle = used[0].as_ref().unwrap().lane();
    drop(used);
    assert!(idle.has_place(), "nobody needs it yet");
    let used = lanes(&bob, SHARE);
    assert_eq!(kinds(&used), [""; SHARE]);
    assert!(!idle.has_place());
}

#[tokio::test]
async fn l33_a_full_house_closes_what_was_idle_for_longest_and_nothing_that_is_in_use() {
    let host = Host::builder().start().await.unwrap();
    let callers: Vec<Session> = (0..5).map(|n| session(&host, &format!("c{n}"))).collect();
    let mut held: Vec<_> = callers[..4].iter().flat_map(|caller| lanes(caller, SHARE)).collect();
    assert_eq!(kinds(&held), [""; LANES], "as many as there may be");
    assert_eq!(kinds(&lanes(&callers[4], 1)), ["overloaded"], "all of them are in use");
    let [first, second] = [70, 3].map(|at| held[at].as_ref().unwrap().lane());
    tokio::time::pause();
    for at in [70, 3] {
        held[at] = Err(crate::Error::Internal("let go".into()));
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
    let late = lanes(&callers[4], 1);
    assert_eq!((kinds(&late), first.has_place(), second.has_place()), (vec![""], false, true));
    let later = lanes(&callers[4], 2);
    assert_eq!(kinds(&later), ["", "overloaded"]);
    assert!(!second.has_place());
    // What gave way comes back as soon as there is room.
    assert_eq!(first.hold().err().map(|error| error.kind()), Some("overloaded"));
    drop(late);
    assert!(first.hold().is_ok());
}

#[tokio::test]
async fn l33_whoever_comes_without_a_key_has_no_share() {
    let host = Host::builder().start().await.unwrap();
    let local = session(&host, CallerName::local().as_str());
    let held = lanes(&local, LANES + 1);
    assert_eq!(kinds(&held[LANES - 1..]), ["", "overloaded"]);
}

#[tokio::test]
async fn l39_an_instance_that_could_not_be_started_takes_no_place() {
    let mut config =
        ServerConfig::stdio(ServerName::parse("never").unwrap(), "/nowhere", Vec::<String>::new());
    config.resilience.instances = 3;
    let policy = crate::policy::Policy::strict().with_commands(["/nowhere"]);
    let host = Host::builder().policy(policy).server(config).start().await.unwrap();
    let places = Arc::new(Semaphore::new(2));
    let refused = host.scope.server("never").unwrap().board(&places).await.err().unwrap();
    assert_eq!((refused.kind(), places.available_permits()), ("connection", 2), "{refused}");
}
