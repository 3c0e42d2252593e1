//! How long callers may keep what they were told, and what they hear when it is another.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use wharf::config::{CallerRules, CallerTable};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, modern_body, open, open_with};
use crate::support::{at, count, folder, host, puppet, received, soon};

/// What is kept by callers when no server says anything.
const OURS: u64 = 5_000;

const LISTS: [(&str, &str, &str); 4] = [
    ("tools/list", "tools", "name"),
    ("prompts/list", "prompts", "name"),
    ("resources/list", "resources", "uri"),
    ("resources/templates/list", "resourceTemplates", "uriTemplate"),
];

/// A server with so many things on each list, which says this of how long they may be kept.
fn saying(era: Era, items: usize, ttl: Option<&Value>) -> Puppet {
    let capabilities = json!({"tools": {}, "prompts": {}, "resources": {}});
    let script = Puppet::of(era).with(|s| s.capabilities = Some(capabilities));
    LISTS.into_iter().fold(script, |script, (method, key, name)| {
        let item = |n: usize| {
            let mut item = json!({"name": "n", "inputSchema": {"type": "object"}});
            item[name] = json!(format!("x{n}"));
            item
        };
        let mut list = json!({key: (0..items).map(item).collect::<Vec<_>>(), "cacheScope": "public"});
        if let Some(ttl) = ttl {
            list["ttlMs"] = ttl.clone();
        }
        script.on(method, [Step::Reply(list)])
    })
}

/// Asks for a list; how many are on it, and how long it may be kept.
async fn kept(door: &Door, method: &str, key: &str, more: &[(&str, &str)]) -> (usize, Value) {
    let answer = door.modern_with(method, json!({}), more).await;
    assert_eq!(answer.body.matches("ttlMs").count(), 1, "{method}: {answer:?}");
    let result = &answer.json()["result"];
    assert_eq!(result["cacheScope"], "private", "{method}: {result}");
    (result[key].as_array().unwrap_or_else(|| panic!("{method}: {result}")).len(), result["ttlMs"].clone())
}

#[tokio::test]
async fn l31_a_list_may_be_kept_for_the_least_time_that_one_of_its_servers_says() {
    let of = |era: Era, items: usize, ttl: Option<u64>| saying(era, items, ttl.map(|t| json!(t)).as_ref());
    for (servers, items, wanted) in [
        (vec![of(Era::Modern, 1, Some(3_000)), of(Era::Modern, 1, Some(1_500))], 2, 1_500),
        (vec![of(Era::Modern, 1, Some(1_500)), of(Era::Modern, 1, Some(3_000))], 2, 1_500),
        (vec![of(Era::Modern, 1, Some(0)), of(Era::Legacy, 1, None)], 2, 0),
        (vec![of(Era::Modern, 1, Some(60_000)), of(Era::Modern, 1, None)], 2, OURS),
        (vec![of(Era::Legacy, 1, None)], 1, OURS),
        // What is not on the list has no say in it, nor has an era that does not know the word.
        (vec![of(Era::Modern, 0, Some(0)), of(Era::Modern, 1, Some(2_000))], 1, 2_000),
        (vec![of(Era::Legacy, 1, Some(0)), of(Era::Modern, 1, Some(2_000))], 2, 2_000),
    ] {
        let servers = servers.iter().enumerate().map(|(n, script)| puppet(&format!("s{n}"), script));
        let door = open(host(servers).await).await;
        for (method, key, _) in LISTS {
            assert_eq!(kept(&door, method, key, &[]).await, (items, json!(wanted)), "{method}");
        }
        let session = door.greet().await;
        for (method, ..) in LISTS {
            let ask = json!({"jsonrpc": "2.0", "id": 1, "method": method});
            let legacy = door.legacy(Some(&session), ask).await;
            assert!(!legacy.body.contains("ttlMs"), "no word of the other era: {legacy:?}");
        }
        door.host.close().await;
    }
}

#[tokio::test]
async fn gwy_10_what_is_no_time_neither_fails_a_list_nor_counts() {
    let ten_years = 10_u64 * 365 * 24 * 60 * 60 * 1000;
    let odd = [json!(-5), json!(1.5), json!("7"), json!(1e300), json!(null), json!({"a": 1}), json!(true)];
    for ttl in odd.into_iter().chain([json!(ten_years), json!(u64::MAX)]) {
        for (neighbour, wanted) in [(None, OURS), (Some(json!(1_500)), 1_500)] {
            let bad = saying(Era::Modern, 1, Some(&ttl));
            let good = saying(Era::Modern, 1, neighbour.as_ref());
            let door = open(host([puppet("bad", &bad), puppet("good", &good)]).await).await;
            for (method, key, _) in LISTS {
                assert_eq!(kept(&door, method, key, &[]).await, (2, json!(wanted)), "{method} {ttl}");
            }
            door.host.close().await;
        }
    }
}

#[tokio::test]
async fn l31_of_several_pages_the_least_counts_and_only_what_a_caller_is_given_does() {
    let tool = |name: &str| json!({"name": name, "inputSchema": {"type": "object"}});
    let first = json!({"tools": [tool("a")], "nextCursor": "more", "ttlMs": 4_000});
    let last = json!({"tools": [tool("b")], "ttlMs": 2_500});
    let paged = Puppet::of(Era::Modern)
        .on("tools/list", [Step::Turns(vec![vec![Step::Reply(first)], vec![Step::Reply(last)]])]);
    let hasty = saying(Era::Modern, 1, Some(&json!(100)));
    let mut rules = CallerTable::default();
    rules.insert("ann", CallerRules::new(["paged", "hasty"], []).unwrap());
    rules.insert("bob", CallerRules::new(["paged"], []).unwrap());
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let callers = Callers::default().keys([key("ann"), key("bob")]);
    let servers = host([puppet("paged", &paged), puppet("hasty", &hasty)]).await;
    let door = open_with(servers, |b| b.callers(callers).rules(rules)).await;
    let ann = kept(&door, "tools/list", "tools", &[("authorization", "Bearer ann")]).await;
    let bob = kept(&door, "tools/list", "tools", &[("authorization", "Bearer bob")]).await;
    assert_eq!((ann, bob), ((3, json!(100)), (2, json!(2_500))));
    door.host.close().await;
}

#[tokio::test]
async fn l51_a_change_that_is_found_by_asking_again_is_told_to_everybody() {
    let files = folder();
    let log = at(&files, "log");
    let list = |name: &str| {
        let tool = json!({"name": name, "inputSchema": {"type": "object"}});
        vec![Step::Reply(json!({"tools": [tool], "ttlMs": 30_000}))]
    };
    let script = Puppet::of(Era::Modern)
        .with(|s| s.capabilities = Some(json!({"tools": {}})))
        .on("tools/list", [Step::Turns(vec![list("old"), list("new")])])
        .log(&log);
    let door = open(host([puppet("pup", &script)]).await).await;
    let listed =
        async || door.modern("tools/list", json!({})).await.json()["result"]["tools"][0]["name"].clone();
    assert_eq!(listed().await, "pup_old");
    let headers = [
        ("accept", "application/json, text/event-stream"),
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "subscriptions/listen"),
    ];
    let body = modern_body("subscriptions/listen", json!({"notifications": {"toolsListChanged": true}}));
    let mut heard = door.stream(Method::POST, "/mcp", &headers, body.to_string()).await;
    assert_eq!(heard.message().await.1["method"], "notifications/subscriptions/acknowledged");
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(31)).await;
    tokio::time::resume();
    assert_eq!(soon("a list", listed()).await, "pup_new");
    assert_eq!(heard.message().await.1["method"], "notifications/tools/list_changed");
    assert_eq!(listed().await, "pup_new");
    assert_eq!(count(&received(&log), "tools/list"), 2);
    door.host.close().await;
}
