//! Taking in many tools at once: chosen ones, with demands, in the place of others, and never by halves.

use serde::Deserialize;
use serde_json::json;
use wharf::CallOptions;
use wharf::Error;
use wharf::Host;
use wharf::host::{Load, LoadAll};
use wharf::names::ServerName;
use wharf::policy::Permission;
use wharf_testkit::{Puppet, Step};

use crate::support::{at, count, error, folder, host, is_alive, pid_in, puppet, quick, received};

fn script() -> Puppet {
    Puppet::new().plain_tool("search").plain_tool("fetch").plain_tool("delete")
}

async fn tools(host: &Host) -> Vec<String> {
    host.tools().await.snapshot.tools().iter().map(|route| route.public.to_string()).collect()
}

fn name(text: &str) -> ServerName {
    ServerName::parse(text).unwrap()
}

#[tokio::test]
async fn l50_all_tools_or_the_chosen_ones_are_taken_in_and_named() {
    let host = host([puppet("known", &script())]).await;
    let names = host.load(Load::new(puppet("web", &script()))).await.unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["web_search", "web_fetch", "web_delete"]);
    let names = host.load(Load::new(puppet("some", &script())).tools(["fetch", "search"])).await.unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["some_search", "some_fetch"], "in its order");
    let names = host.load(Load::new("known").tools(["search"])).await.unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["known_search"]);
    assert_eq!(tools(&host).await.len(), 6);
    assert!(host.call("some_search", json!({})).await.success);
    let hidden = host.call_tool("some", "delete", json!({}), CallOptions::default()).await;
    assert_eq!(error(&hidden).kind(), "unknown_tool", "what was not chosen cannot be called");
    assert!(host.load(Load::new(puppet("none", &script())).tools([""; 0])).await.unwrap().is_empty());
    assert_eq!(host.load(Load::new("nobody")).await.unwrap_err().kind(), "unknown_server");
    host.close().await;
}

#[derive(Deserialize)]
struct Search {
    #[serde(rename = "query")]
    _query: String,
    #[serde(rename = "limit", default)]
    _limit: u8,
}

#[tokio::test]
async fn l54_ones_own_demands_come_after_the_schema_and_nothing_is_sent_if_they_fail() {
    let files = folder();
    let log = at(&files, "log");
    let host = host([]).await;
    let load = Load::new(puppet("web", &script().log(&log))).demand_type::<Search>("search").demand(
        "fetch",
        |arguments| match arguments.member("url") {
            Some(url) if url.as_str().contains("https:") => Ok(()),
            _ => Err("only https is fetched".into()),
        },
    );
    host.load(load).await.unwrap();
    for (tool, arguments, words) in [
        ("web_search", json!({}), "missing field `query`"),
        ("web_search", json!({"query": "tide", "limit": 300}), "300"),
        ("web_fetch", json!({"url": "http://example.org"}), "only https is fetched"),
    ] {
        let outcome = host.call(tool, arguments).await;
        assert_eq!(error(&outcome).kind(), "arguments");
        assert!(error(&outcome).to_string().contains(words), "{outcome:?}");
    }
    assert_eq!(count(&received(&log), "tools/call"), 0);
    assert!(host.call("web_search", json!({"query": "tide", "limit": 3})).await.success);
    assert!(host.call("web_fetch", json!({"url": "https://example.org"})).await.success);
    assert!(host.call("web_delete", json!({})).await.success, "others are as they were");
    assert_eq!(count(&received(&log), "tools/call"), 3);
    // A demand on a tool that is not there is a mistake, not a wish.
    let load = Load::new(puppet("other", &script())).demand("serach", |_| Ok(()));
    let mistaken = host.load(load).await.unwrap_err();
    assert!(mistaken.hint().unwrap().contains("`search`"), "{mistaken:?}");
    host.close().await;
}

#[tokio::test]
async fn l50_a_name_that_is_taken_is_refused_or_updated() {
    let files = folder();
    let (old, new) = (at(&files, "old"), at(&files, "new"));
    let host = quick().start().await.unwrap();
    host.load(Load::new(puppet("web", &script().pid(&old)))).await.unwrap();
    let before = pid_in(&old).await;
    let refused = host.load(Load::new(puppet("web", &script().pid(&new)))).await.unwrap_err();
    assert!(refused.hint().unwrap().contains("`update`"), "{refused:?}");
    assert!(!new.exists() && is_alive(before), "nothing was started and nothing ended");
    let names =
        host.load(Load::new(puppet("web", &script().pid(&new))).tools(["fetch"]).update()).await.unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["web_fetch"]);
    assert_eq!(tools(&host).await, ["web_fetch"]);
    crate::support::until("the old one is gone", || !is_alive(before)).await;
    assert!(host.call("web_fetch", json!({})).await.success);
    host.close().await;
}

#[tokio::test]
async fn l50_a_load_that_fails_takes_nothing_in_and_leaves_what_was_there() {
    let files = folder();
    let (old, new) = (at(&files, "old"), at(&files, "new"));
    let host = quick().start().await.unwrap();
    host.load(Load::new(puppet("web", &script().pid(&old)))).await.unwrap();
    let process = pid_in(&old).await;
    let broken = script()
        .pid(&new)
        .on("tools/list", [Step::ReplyError { code: 1, message: "no list".into(), data: None }]);
    let loads = [
        (Load::new(puppet("web", &broken)).update(), "rpc"),
        (Load::new(puppet("web", &script().pid(&new))).tools(["search", "dig"]).update(), "unknown_tool"),
        (Load::new("web").tools(["dig"]), "unknown_tool"),
        (Load::new("web").demand("dig", |_| Ok(())), "unknown_tool"),
        (Load::new(puppet("fresh", &script().pid(&new))).tools(["dig"]), "unknown_tool"),
        (Load::new(puppet("fresh", &broken)), "rpc"),
    ];
    for (load, kind) in loads {
        let shown = format!("{load:?}");
        assert_eq!(host.load(load).await.unwrap_err().kind(), kind, "{shown}");
        assert!(!new.exists() || !is_alive(pid_in(&new).await), "{shown}");
        assert_eq!(tools(&host).await, ["web_search", "web_fetch", "web_delete"], "{shown}");
        assert!(host.call("web_delete", json!({})).await.success, "{shown}");
        assert!(is_alive(process), "it was not even started anew: {shown}");
    }
    let mut narrow = puppet("narrow", &script());
    narrow.disabled_tools = vec!["delete".into()];
    let denied = host.load(Load::new(narrow).tools(["delete"])).await.unwrap_err();
    assert!(matches!(denied, Error::Denied { .. }), "{denied:?}");
    host.close().await;
}

#[tokio::test]
async fn l65_several_servers_are_taken_in_side_by_side_and_each_reported_by_itself() {
    let host = quick().start().await.unwrap();
    let broken = puppet("broken", &Puppet::new().with(|s| s.start = vec![Step::Exit(3)]));
    let all = || [puppet("search", &script()), broken.clone(), puppet("memory", &Puppet::new())];
    let loaded = host.load_all(LoadAll::new(all())).await;
    assert_eq!(loaded.keys().map(ServerName::as_str).collect::<Vec<_>>(), ["search", "broken", "memory"]);
    assert_eq!(loaded[&name("search")].as_ref().unwrap().len(), 3);
    assert_eq!(&*loaded[&name("memory")].as_ref().unwrap()[0], "memory_echo");
    assert_eq!(loaded[&name("broken")].as_ref().unwrap_err().kind(), "connection");
    assert_eq!(host.servers().len(), 2);
    let again = host.load_all(LoadAll::new(all()).only(["search"])).await;
    assert_eq!(again[&name("search")].as_ref().unwrap_err().kind(), "config");
    assert_eq!(again.len(), 1);
    let again = host.load_all(LoadAll::new(all()).only(["Memory", "nobody"]).update()).await;
    assert!(again[&name("memory")].is_ok() && again.len() == 2);
    assert_eq!(again[&name("nobody")].as_ref().unwrap_err().kind(), "unknown_server");
    host.close().await;
}

#[tokio::test]
async fn l63_what_a_session_takes_in_is_its_own_and_a_shared_server_stays_as_it_is() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = quick().server(puppet("web", &script().pid(&pid))).start().await.unwrap();
    assert_eq!(tools(&host).await.len(), 3);
    let process = pid_in(&pid).await;
    let session = host.session("a").permission(Permission::Yolo).start().unwrap();
    assert_eq!(session.load(Load::new("web").tools(["dig"])).await.unwrap_err().kind(), "unknown_tool");
    session.load(Load::new("web").tools(["search"])).await.unwrap();
    session.load(Load::new(puppet("own", &script()))).await.unwrap();
    assert_eq!(tools(&session).await.len(), 4);
    assert_eq!(tools(&host).await, ["web_search", "web_fetch", "web_delete"]);
    session.close().await;
    assert!(is_alive(process) && host.call("web_delete", json!({})).await.success);
    host.close().await;
}
