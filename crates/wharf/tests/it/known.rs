//! What servers are known to offer: told before they are started, compared when they are.

use std::path::Path;
use std::sync::Arc;

use serde_json::{Value, json};
use tempfile::TempDir;
use wharf::catalog::{CatalogMemory, CatalogStore, Catalogue, ListKind, PinKey, Pinned};
use wharf::config::{ServerConfig, Transport};
use wharf::error::Error;
use wharf::event::Event;
use wharf::host::{HostBuilder, Listing};
use wharf::names::ServerName;
use wharf::secret::Secret;
use wharf_testkit::{Puppet, Step, puppet_path};

use crate::support::{at, count, error, folder, puppet, quick, received, soon, until};

/// A builder that keeps what it sees in this store.
fn keeping(store: &Arc<CatalogMemory>) -> HostBuilder {
    quick().catalogs(Arc::clone(store) as _)
}

/// A puppet whose script lies in a file, so that it can change while the configuration does not.
fn from_file(name: &str, script: &Path) -> ServerConfig {
    let path = puppet_path().display().to_string();
    ServerConfig::stdio(ServerName::parse(name).unwrap(), path, ["--file", script.to_str().unwrap()])
}

fn write(script: &Path, puppet: &Puppet) {
    std::fs::write(script, serde_json::to_string(&puppet.script).unwrap()).unwrap();
}

fn names(listing: &Listing) -> Vec<String> {
    listing.snapshot.tools().iter().map(|route| route.public.to_string()).collect()
}

/// One that takes a number called `count`, or nothing.
fn counter(required: bool) -> Value {
    let required = if required { json!(["count"]) } else { json!([]) };
    let schema =
        json!({"type": "object", "properties": {"count": {"type": "integer"}}, "required": required});
    json!({"name": "count", "inputSchema": schema})
}

#[tokio::test]
async fn l40_ten_servers_are_listed_without_a_process_and_a_call_starts_exactly_one() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let pid = |n: usize| at(&files, &format!("pid{n}"));
    let servers = || (0..10).map(|n| puppet(&format!("s{n}"), &Puppet::new().pid(pid(n))));
    let first = keeping(&store).servers(servers()).start().await.unwrap();
    let live = names(&soon("ten servers", first.known_tools()).await);
    assert_eq!(live.len(), 10);
    first.close().await;
    (0..10).for_each(|n| std::fs::remove_file(pid(n)).unwrap());

    let host = keeping(&store).servers(servers()).start().await.unwrap();
    let listing = host.known_tools().await;
    assert_eq!(names(&listing), live, "the same tools in the same order");
    assert!(listing.failed.is_empty());
    assert!((0..10).all(|n| !pid(n).exists()), "nothing was started");
    let said = host.call("s3_echo", json!({"message": "hi"})).await;
    assert!(said.success, "{said:?}");
    let unknown = host.call("nobody_has_it", json!({})).await;
    assert!(matches!(error(&unknown), Error::UnknownTool { .. }));
    assert_eq!(names(&host.known_tools().await), live);
    let started = || (0..10).filter(|n| pid(*n).exists()).collect::<Vec<usize>>();
    assert_eq!(started(), [3]);
    // What is called by the name of a server may be new there.
    let unknown = host.call("s9_nothing", json!({})).await;
    assert!(matches!(error(&unknown), Error::UnknownTool { .. }));
    assert_eq!(started(), [3, 9]);
    host.close().await;
}

#[tokio::test]
async fn l40_a_list_that_changed_is_noticed_before_the_call_is_sent() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let (script, log) = (at(&files, "script"), at(&files, "log"));
    write(&script, &Puppet::new().plain_tool("old").tool(counter(false)));
    let first = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    assert_eq!(names(&first.known_tools().await), ["pup_old", "pup_count"]);
    first.close().await;

    write(&script, &Puppet::new().plain_tool("new").tool(counter(true)).log(&log));
    let host = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    let mut events = host.events().subscribe();
    assert_eq!(names(&host.known_tools().await), ["pup_old", "pup_count"], "as it was last seen");
    let gone = host.call("pup_old", json!({})).await;
    assert!(matches!(error(&gone), Error::UnknownTool { .. }), "{gone:?}");
    soon("word of the change", async {
        while !matches!(events.recv().await.unwrap(), Event::ToolsChanged { .. }) {}
    })
    .await;
    let misfit = host.call("pup_count", json!({})).await;
    assert!(matches!(error(&misfit), Error::Arguments { .. }), "the live definition counts: {misfit:?}");
    assert_eq!(count(&received(&log), "tools/call"), 0, "nothing that was refused was sent");
    assert!(host.call("pup_count", json!({"count": 1})).await.success);
    assert_eq!(names(&host.known_tools().await), ["pup_new", "pup_count"]);
    assert_eq!(count(&received(&log), "tools/list"), 1, "one look was enough");
    host.close().await;

    let later = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    assert_eq!(names(&later.known_tools().await), ["pup_new", "pup_count"], "it was written down");
    assert!(!later.berth("pup").unwrap().connected());
}

#[tokio::test]
async fn l40_the_first_call_to_a_changed_definition_is_checked_against_the_live_one() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let (script, log) = (at(&files, "script"), at(&files, "log"));
    write(&script, &Puppet::new().tool(counter(false)));
    let first = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    first.known_tools().await;
    first.close().await;
    write(&script, &Puppet::new().tool(counter(true)).log(&log));
    let host = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    host.known_tools().await;
    let misfit = host.call("pup_count", json!({})).await;
    assert!(matches!(error(&misfit), Error::Arguments { .. }), "{misfit:?}");
    assert_eq!(count(&received(&log), "tools/call"), 0);
}

#[tokio::test]
async fn l40_another_configuration_is_another_server() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let pid = at(&files, "pid");
    let with = |value: &str| {
        let mut config = puppet("pup", &Puppet::new().pid(&pid));
        if let Transport::Stdio(stdio) = &mut config.transport {
            stdio.env.insert("TOOLSETS".into(), Secret::new(value));
        }
        config
    };
    let first = keeping(&store).server(with("some")).start().await.unwrap();
    first.known_tools().await;
    first.close().await;
    for (value, starts) in [("some", false), ("all", true)] {
        let _ = std::fs::remove_file(&pid);
        let host = keeping(&store).server(with(value)).start().await.unwrap();
        assert_eq!(host.known_tools().await.snapshot.tools().len(), 1);
        assert_eq!(pid.exists(), starts, "with `{value}`");
        host.close().await;
    }
    let key = |config: &ServerConfig| PinKey::of(config, &std::collections::BTreeMap::new());
    let (some, all) = (key(&with("some")), key(&with("all")));
    assert_eq!(some.identity, all.identity, "what others see tells nothing of values");
    assert!(!some.fits(&all) && some.fits(&PinKey { local: None, ..all }));
}

#[tokio::test]
async fn l40_a_server_that_is_down_keeps_its_tools_and_is_reported() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let script = at(&files, "script");
    write(&script, &Puppet::new());
    let servers = || [from_file("ill", &script), puppet("well", &Puppet::new())];
    let first = keeping(&store).servers(servers()).start().await.unwrap();
    first.known_tools().await;
    first.close().await;
    std::fs::remove_file(&script).unwrap();
    let host = keeping(&store).servers(servers()).start().await.unwrap();
    assert!(host.known_tools().await.failed.is_empty(), "nobody tried yet");
    assert!(!host.call("ill_echo", json!({})).await.success);
    let listing = host.known_tools().await;
    assert_eq!(names(&listing), ["ill_echo", "well_echo"], "it keeps its place");
    assert_eq!(listing.failed.len(), 1);
    assert_eq!(listing.failed[0].0.as_str(), "ill");
    assert!(!host.berth("well").unwrap().connected(), "its neighbour was left alone");
    write(&script, &Puppet::new());
    assert!(host.call("ill_echo", json!({})).await.success);
    assert!(host.known_tools().await.failed.is_empty(), "it is well again");
    host.close().await;
}

#[tokio::test]
async fn l40_a_server_of_which_nothing_is_known_is_tried_once_and_then_left_alone() {
    let files = folder();
    let (script, starts) = (at(&files, "script"), at(&files, "starts"));
    let crash = wharf_testkit::Crash { file: starts.clone(), times: 1000, code: 3 };
    write(&script, &Puppet::new().with(|s| s.crash = Some(crash)));
    let store = Arc::new(CatalogMemory::default());
    let host = keeping(&store).server(from_file("pup", &script)).start().await.unwrap();
    assert_eq!(host.known_tools().await.failed.len(), 1);
    let tried = crate::support::effects(&starts);
    assert_eq!(host.known_tools().await.failed.len(), 1, "it is still reported");
    assert_eq!(host.known_prompts().await.failed.len(), 1);
    assert_eq!(crate::support::effects(&starts), tried, "and was not started again just for a list");
    assert_eq!(host.tools().await.failed.len(), 1);
    assert!(crate::support::effects(&starts) > tried, "whoever asks for now is answered now");
}

/// A server with one of each, that says so when its lists change.
fn rich(log: &Path) -> Puppet {
    let capabilities =
        json!({"tools": {}, "prompts": {"listChanged": true}, "resources": {"listChanged": true}});
    let changed =
        |what: &str| Step::Notify { method: format!("notifications/{what}/list_changed"), params: None };
    Puppet::of(wharf_testkit::Era::Legacy)
        .with(|s| s.capabilities = Some(capabilities))
        .log(log)
        .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "greet"}]}))])
        .on("resources/list", [Step::Reply(json!({"resources": [{"uri": "a://b", "name": "b"}]}))])
        .on(
            "resources/templates/list",
            [Step::Reply(json!({"resourceTemplates": [{"uriTemplate": "a://{x}", "name": "x"}]}))],
        )
        .on("tool:echo", [changed("prompts"), changed("resources"), Step::Echo])
}

async fn counted(host: &wharf::Host) -> [usize; 3] {
    let prompts = host.known_prompts().await;
    let resources = host.known_resources().await;
    let templates = host.known_resource_templates().await;
    assert!(prompts.failed.is_empty() && resources.failed.is_empty() && templates.failed.is_empty());
    let prompts: usize = prompts.offered.iter().map(|(_, list)| list.items.len()).sum();
    let resources: usize = resources.offered.iter().map(|(_, list)| list.items.len()).sum();
    [prompts, resources, templates.offered.iter().map(|(_, list)| list.items.len()).sum()]
}

#[tokio::test]
async fn l40_prompts_and_resources_come_from_memory_until_they_change() {
    let (files, store) = (folder(), Arc::new(CatalogMemory::default()));
    let log = at(&files, "log");
    let lists = ["prompts/list", "resources/list", "resources/templates/list"];
    let asked = || lists.map(|method| count(&received(&log), method));
    let servers = || [puppet("pup", &rich(&log)), puppet("plain", &Puppet::new())];
    let host = keeping(&store).servers(servers()).start().await.unwrap();
    assert_eq!(counted(&host).await, [1, 1, 1]);
    assert_eq!(counted(&host).await, [1, 1, 1]);
    assert_eq!(asked(), [1, 1, 1], "asked once, remembered after");
    let mut events = host.events().subscribe();
    assert!(host.call("pup_echo", json!({})).await.success);
    soon("word of the change", async {
        while !matches!(events.recv().await.unwrap(), Event::ResourcesChanged { .. }) {}
    })
    .await;
    assert_eq!(counted(&host).await, [1, 1, 1]);
    assert_eq!(asked(), [2, 2, 2], "asked again after the server said so");
    host.close().await;

    std::fs::remove_file(&log).unwrap();
    let host = keeping(&store).servers(servers()).start().await.unwrap();
    assert_eq!(counted(&host).await, [1, 1, 1]);
    assert!(!log.exists(), "and after a restart nobody is started for it");
    assert!(host.known_prompts().await.offered.iter().all(|(server, _)| server.as_str() == "pup"));
    host.call("pup_echo", json!({})).await;
    until("the other lists are compared", || asked() == [1, 1, 1]).await;
    host.close().await;
}

#[tokio::test]
async fn l40_a_list_without_a_promise_is_asked_for_each_time() {
    let files = folder();
    let log = at(&files, "log");
    let script = rich(&log).with(|s| s.capabilities = Some(json!({"tools": {}, "prompts": {}})));
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    host.known_prompts().await;
    host.known_prompts().await;
    assert_eq!(count(&received(&log), "prompts/list"), 2);
    assert!(host.known_resources().await.offered.is_empty());
}

#[tokio::test]
async fn l40_definitions_that_hold_a_secret_are_not_written_down() {
    for (secret, written) in [("sesame-open-wide", true), ("the-tool-of-pup", false)] {
        let store = Arc::new(CatalogMemory::default());
        let tool =
            json!({"name": "leak", "description": "the-tool-of-pup", "inputSchema": {"type": "object"}});
        let mut config = puppet("pup", &Puppet::new().tool(tool));
        if let Transport::Stdio(stdio) = &mut config.transport {
            stdio.env.insert("TOKEN".into(), Secret::new(secret));
        }
        let key = PinKey::of(&config, &std::env::vars().collect());
        let host = keeping(&store).server(config).start().await.unwrap();
        assert_eq!(host.known_tools().await.snapshot.tools().len(), 1);
        assert_eq!(store.get(&ServerName::parse("pup").unwrap(), &key).is_some(), written);
        host.close().await;
    }
}

/// What a host saw of a server with these tools.
async fn pinned(files: &TempDir, tools: &[Value]) -> Pinned {
    let store = Arc::new(CatalogMemory::default());
    let script = at(files, "script");
    write(&script, &tools.iter().fold(Puppet::new(), |puppet, tool| puppet.tool(tool.clone())));
    let config = from_file("pup", &script);
    let key = PinKey::of(&config, &std::env::vars().collect());
    let host = keeping(&store).server(config).start().await.unwrap();
    host.known_tools().await;
    host.close().await;
    store.get(&ServerName::parse("pup").unwrap(), &key).unwrap()
}

fn catalogue(pinned: Pinned) -> Catalogue {
    Catalogue { servers: [(ServerName::parse("pup").unwrap(), pinned)].into() }
}

#[tokio::test]
async fn l40_the_file_is_made_for_review_and_keeps_every_definition() {
    let files = folder();
    let odd = json!({"name": "zebra", "inputSchema": {"type": "object", "x-odd": [1e300, {}, []]}, "\u{e9}\"": "\\"});
    let before = catalogue(pinned(&files, &[odd.clone(), counter(true)]).await);
    let text = before.to_text();
    let read = Catalogue::parse(text.as_bytes()).unwrap();
    assert_eq!(read, before);
    assert_eq!(read.to_text(), text, "the same catalogue is the same text");
    let tools = &read.servers.values().next().unwrap().lists[&ListKind::Tools];
    let order: Vec<&str> = tools.iter().map(|d| &*d.name).collect();
    assert_eq!(order, ["zebra", "count"], "the server's order");
    assert_eq!(tools.iter().next().unwrap().raw.to::<Value>().unwrap(), odd);
    assert!(text.starts_with("{\n  \"wharf_catalogue\": 1,\n  \"servers\": {\n    \"pup\": {\n"), "{text}");
    assert!(text.find("\"count\": {").unwrap() < text.find("\"zebra\": {").unwrap(), "sorted");

    let changed = catalogue(pinned(&files, &[odd, counter(false)]).await).to_text();
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<std::collections::BTreeSet<_>>();
    let differing = lines(&text).symmetric_difference(&lines(&changed)).count();
    assert!((1..=8).contains(&differing), "a small change is a small difference: {differing}");
}

#[tokio::test]
async fn l40_a_file_that_was_meddled_with_is_refused() {
    let files = folder();
    let text = catalogue(pinned(&files, &[counter(true)]).await).to_text();
    assert!(Catalogue::parse(text.as_bytes()).is_ok());
    for (wrong, why) in [
        (text.replace("\"integer\"", "\"string\""), "fingerprint"),
        (text.replace("\"wharf_catalogue\": 1", "\"wharf_catalogue\": 2"), "version 2"),
        (text[..text.len() / 2].to_owned(), "cannot be read"),
        (text.replace("\"order\": [\n            \"count\"\n          ]", "\"order\": []"), "order"),
    ] {
        assert_ne!(wrong, text);
        let said = Catalogue::parse(wrong.as_bytes()).unwrap_err();
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn l40_a_fingerprint_is_of_what_is_meant_and_not_of_how_it_is_laid_out() {
    let of = |text: &str| wharf::catalog::fingerprint(&wharf::Json::parse(text.to_owned(), 127).unwrap());
    let plain = of(r#"{"a":1,"b":[{"c":"x"},2]}"#);
    assert_eq!(of("{ \"b\" : [ {\"c\":\"x\"} , 2 ] ,\n\t\"a\": 1 }"), plain);
    for other in [
        r#"{"a":1.0,"b":[{"c":"x"},2]}"#,
        r#"{"a":1,"b":[2,{"c":"x"}]}"#,
        r#"{"a":1,"b":[{"c":"x "},2]}"#,
        r#"{"a":1,"a":2,"b":[{"c":"x"},2]}"#,
        r#"{"a":1,"b":[{"c":"x"},2],"d":null}"#,
    ] {
        assert_ne!(of(other), plain, "{other}");
    }
    assert_ne!(of(r#"{"a":"\""}"#), of(r#"{"a":"\"\\"}"#));
}
