//! Prompts, resources, templates and completion through the gateway, in both eras each way.

use serde_json::{Value, json};
use wharf::config::{CallerRules, CallerTable};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::{Door, open, open_with};
use crate::support::{at, count, folder, host, puppet, received};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

/// A caller of an era, over HTTP.
struct Caller<'a> {
    door: &'a Door,
    session: Option<String>,
}

impl<'a> Caller<'a> {
    async fn of(era: Era, door: &'a Door) -> Self {
        let session = match era {
            Era::Legacy => Some(door.greet().await),
            _ => None,
        };
        Self { door, session }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        match &self.session {
            None => self.door.modern(method, params).await.json(),
            Some(session) => {
                let message = json!({"jsonrpc": "2.0", "id": 7, "method": method, "params": params});
                self.door.legacy(Some(session), message).await.json()
            }
        }
    }
}

fn able(era: Era) -> Puppet {
    let capabilities = json!({"tools": {}, "prompts": {}, "resources": {"subscribe": true}, "completions": {}, "logging": {}});
    Puppet::of(era).with(|s| s.capabilities = Some(capabilities))
}

fn reply(result: Value) -> [Step; 1] {
    [Step::Reply(result)]
}

/// Both kinds of caller in front of both kinds of server.
fn matrix() -> impl Iterator<Item = (Era, Era)> {
    ERAS.into_iter().flat_map(|caller| ERAS.into_iter().map(move |server| (caller, server)))
}

fn column(answer: &Value, list: &str, key: &str) -> Vec<String> {
    let items = answer["result"][list].as_array().unwrap_or_else(|| panic!("no {list}: {answer}"));
    items.iter().map(|item| item[key].as_str().unwrap().to_owned()).collect()
}

#[tokio::test]
async fn l80_prompts_are_listed_under_public_names_and_got_by_them() {
    for (caller, server) in matrix() {
        let files = folder();
        let log = at(&files, "log");
        let prompts = json!({"prompts": [
            {"arguments": [{"name": "who", "x-odd": 1.0}], "name": "greet", "_meta": {"v/k": [1e2]}},
            {"name": "näme with blanks"},
        ]});
        let filled =
            json!({"messages": [{"role": "user", "content": {"type": "text", "text": "1.0"}}], "odd": 1e2});
        let script =
            able(server).on("prompts/list", reply(prompts)).on("prompts/get", reply(filled)).log(&log);
        let door = open(host([puppet("pup", &script)]).await).await;
        let caller = Caller::of(caller, &door).await;
        let listed = caller.ask("prompts/list", json!({})).await;
        assert_eq!(column(&listed, "prompts", "name"), ["pup_greet", "pup_n_me_with_blanks"]);
        let first = listed["result"]["prompts"][0].to_string();
        assert_eq!(
            first,
            r#"{"arguments":[{"name":"who","x-odd":1.0}],"name":"pup_greet","_meta":{"v/k":[100.0]}}"#
        );
        let params = json!({"name": "pup_greet", "arguments": {"who": "Ada"}, "extra": 5});
        let got = caller.ask("prompts/get", params).await;
        assert_eq!(got["result"]["messages"][0]["content"]["text"], "1.0", "{got}");
        assert_eq!(got["result"]["odd"], json!(1e2));
        let asked = received(&log).into_iter().find(|m| m["method"] == "prompts/get").unwrap();
        assert_eq!(asked["params"]["name"], "greet");
        assert_eq!(asked["params"]["arguments"], json!({"who": "Ada"}));
        assert_eq!(asked["params"]["extra"], 5, "what nobody knows goes on");
        for name in ["greet", "pup_nothing", "other_greet"] {
            let unknown = caller.ask("prompts/get", json!({"name": name})).await;
            assert_eq!(unknown["error"]["code"], -32602, "{unknown}");
        }
        assert_eq!(count(&received(&log), "prompts/get"), 1);
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_resources_keep_their_addresses_and_what_two_have_names_its_server() {
    for (caller, server) in matrix() {
        let script = |own: &str| {
            let list = json!({"resources": [
                {"uri": "x://both", "name": own}, {"uri": format!("x://{own}"), "name": own, "size": 1.0},
            ]});
            let read = json!({"contents": [{"uri": "x://both", "text": own}], "odd": 1.0});
            able(server).on("resources/list", reply(list)).on("resources/read", reply(read))
        };
        let files = folder();
        let log = at(&files, "log");
        let servers = [puppet("one", &script("one")), puppet("two", &script("two").log(&log))];
        let door = open(host(servers).await).await;
        let caller = Caller::of(caller, &door).await;
        let listed = caller.ask("resources/list", json!({})).await;
        assert_eq!(
            column(&listed, "resources", "uri"),
            ["x://both", "x://one", "wharf+two:x://both", "x://two"]
        );
        assert_eq!(
            listed["result"]["resources"][3].to_string(),
            r#"{"uri":"x://two","name":"two","size":1.0}"#
        );
        for (uri, text, named) in [
            ("x://both", "one", "x://both"),
            ("x://one", "one", "x://both"),
            ("x://two", "two", "x://both"),
            ("wharf+two:x://both", "two", "wharf+two:x://both"),
            ("wharf+one:x://both", "one", "wharf+one:x://both"),
        ] {
            let read = caller.ask("resources/read", json!({"uri": uri})).await;
            assert_eq!(read["result"]["contents"][0]["text"], text, "{uri}: {read}");
            assert_eq!(read["result"]["contents"][0]["uri"], named, "{uri}");
            assert_eq!(read["result"]["odd"].to_string(), "1.0");
        }
        let asked: Vec<Value> =
            received(&log).into_iter().filter(|m| m["method"] == "resources/read").collect();
        assert_eq!(asked[1]["params"]["uri"], "x://both", "the server hears its own address");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_an_address_nobody_lists_is_found_by_its_template_or_is_not_found() {
    for (caller, server) in matrix() {
        let files = folder();
        let script = |own: &str| {
            let templates = json!({"resourceTemplates": [{"uriTemplate": format!("{own}://{{id}}/{{page}}"), "name": "t"}]});
            let read = json!({"contents": [{"uri": "x", "text": own}]});
            able(server)
                .on("resources/list", reply(json!({"resources": []})))
                .on("resources/templates/list", reply(templates))
                .on("resources/read", reply(read))
                .log(at(&files, own))
        };
        let door = open(host([puppet("one", &script("one")), puppet("two", &script("two"))]).await).await;
        let era = caller;
        let caller = Caller::of(caller, &door).await;
        let listed = caller.ask("resources/templates/list", json!({})).await;
        let wanted = ["one://{id}/{page}", "two://{id}/{page}"];
        assert_eq!(column(&listed, "resourceTemplates", "uriTemplate"), wanted);
        let read = caller.ask("resources/read", json!({"uri": "two://a/b"})).await;
        assert_eq!(read["result"]["contents"][0]["text"], "two", "{read}");
        let lost = caller.ask("resources/read", json!({"uri": "three://a/b"})).await;
        let code = if era == Era::Legacy { -32002 } else { -32602 };
        assert_eq!(
            (&lost["error"]["code"], &lost["error"]["data"]["uri"]),
            (&json!(code), &json!("three://a/b"))
        );
        let lost = caller.ask("resources/read", json!({"uri": "wharf+three:x"})).await;
        assert_eq!(lost["error"]["code"], code);
        assert_eq!(count(&received(&at(&files, "one")), "resources/read"), 0, "nobody else was asked");
        assert_eq!(count(&received(&at(&files, "two")), "resources/read"), 1);
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_a_resource_that_is_not_there_is_said_in_the_callers_era() {
    for (caller, server) in matrix() {
        let (theirs, data) = match server {
            Era::Legacy => (-32002, None),
            _ => (-32602, Some(json!({"uri": "x://gone"}))),
        };
        let refusal = Step::ReplyError { code: theirs, message: "no such resource".into(), data };
        let script = able(server)
            .on("resources/list", reply(json!({"resources": []})))
            .on("resources/templates/list", reply(json!({"resourceTemplates": []})))
            .on("resources/read", [refusal]);
        let door = open(host([puppet("pup", &script)]).await).await;
        let ours = if caller == Era::Legacy { -32002 } else { -32602 };
        let caller = Caller::of(caller, &door).await;
        let lost = caller.ask("resources/read", json!({"uri": "x://gone"})).await;
        assert_eq!(lost["error"]["code"], ours, "the only server with resources was asked: {lost}");
        assert_eq!(lost["error"]["message"], "no such resource");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_arguments_are_completed_where_their_prompt_or_template_is() {
    for (caller, server) in matrix() {
        let files = folder();
        let script = |own: &str| {
            let templates = json!({"resourceTemplates": [{"uriTemplate": "x://{id}", "name": "t"}]});
            able(server)
                .on("prompts/list", reply(json!({"prompts": [{"name": "greet"}]})))
                .on("resources/list", reply(json!({"resources": []})))
                .on("resources/templates/list", reply(templates))
                .on("completion/complete", reply(json!({"completion": {"values": [own], "total": 1}})))
                .log(at(&files, own))
        };
        let mute = Puppet::of(server)
            .with(|s| s.capabilities = Some(json!({"prompts": {}})))
            .on("prompts/list", reply(json!({"prompts": [{"name": "p"}]})));
        let servers = [puppet("one", &script("one")), puppet("two", &script("two")), puppet("mute", &mute)];
        let door = open(host(servers).await).await;
        let caller = Caller::of(caller, &door).await;
        for (reference, own, value) in [
            (
                json!({"type": "ref/prompt", "name": "two_greet"}),
                json!({"type": "ref/prompt", "name": "greet"}),
                "two",
            ),
            (
                json!({"type": "ref/resource", "uri": "x://{id}"}),
                json!({"type": "ref/resource", "uri": "x://{id}"}),
                "one",
            ),
            (
                json!({"uri": "wharf+two:x://{id}", "type": "ref/resource"}),
                json!({"uri": "x://{id}", "type": "ref/resource"}),
                "two",
            ),
        ] {
            let params = json!({"ref": reference, "argument": {"name": "a", "value": "v"}, "context": {"arguments": {"b": "c"}}});
            let completed = caller.ask("completion/complete", params).await;
            assert_eq!(completed["result"]["completion"]["values"], json!([value]), "{completed}");
            let asked =
                received(&at(&files, value)).into_iter().rfind(|m| m["method"] == "completion/complete");
            let asked = asked.unwrap();
            assert_eq!(asked["params"]["ref"], own);
            assert_eq!(asked["params"]["argument"], json!({"name": "a", "value": "v"}));
            assert_eq!(asked["params"]["context"], json!({"arguments": {"b": "c"}}));
        }
        let argument = json!({"name": "a", "value": ""});
        let nothing = json!({"ref": {"type": "ref/prompt", "name": "mute_p"}, "argument": argument});
        let completed = caller.ask("completion/complete", nothing).await;
        assert_eq!(completed["result"]["completion"]["values"], json!([]), "{completed}");
        let lost = json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": argument});
        assert_eq!(caller.ask("completion/complete", lost).await["error"]["code"], -32602);
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_capabilities_are_those_of_the_servers_together_and_what_nobody_has_is_no_method() {
    for (caller, server) in matrix() {
        let with = |capabilities: Value| Puppet::of(server).with(|s| s.capabilities = Some(capabilities));
        let plain = open(host([puppet("pup", &with(json!({"tools": {}})))]).await).await;
        let caller_of_plain = Caller::of(caller, &plain).await;
        for method in [
            "prompts/list",
            "prompts/get",
            "resources/list",
            "resources/templates/list",
            "resources/read",
            "completion/complete",
            "no/such",
        ] {
            let params = if method == "resources/read" { json!({"uri": "u"}) } else { json!({"name": "n"}) };
            let answer = caller_of_plain.ask(method, params).await;
            assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
        }
        plain.host.close().await;
        let files = folder();
        let crash = wharf_testkit::Crash { file: at(&files, "starts"), times: u64::MAX, code: 1 };
        let servers = [
            puppet("one", &with(json!({"prompts": {}, "logging": {}}))),
            puppet("two", &with(json!({"resources": {"subscribe": true}, "completions": {}}))),
            puppet("down", &Puppet::of(server).with(|s| s.crash = Some(crash))),
        ];
        let door = open(host(servers).await).await;
        let declared = match caller {
            Era::Legacy => {
                let params = json!({"protocolVersion": "2025-11-25", "capabilities": {}});
                let hello = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params});
                door.legacy(None, hello).await.json()
            }
            _ => door.modern("server/discover", json!({})).await.json(),
        };
        let wanted = json!({
            "tools": {"listChanged": true},
            "prompts": {"listChanged": true},
            "resources": {"subscribe": true, "listChanged": true},
            "completions": {},
            "logging": {},
        });
        assert_eq!(declared["result"]["capabilities"], wanted, "{declared}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l80_a_server_that_fails_is_left_out_of_a_list_and_pages_have_cursors_of_their_own() {
    let many: Vec<Value> = (0..1001).map(|n| json!({"uri": format!("x://{n}"), "name": "n"})).collect();
    let refusal = Step::ReplyError { code: -32603, message: "not today".into(), data: None };
    for era in ERAS {
        let bad = able(era).on("resources/list", [refusal.clone()]);
        let good = able(era).on("resources/list", reply(json!({"resources": many.clone()})));
        let door = open(host([puppet("bad", &bad), puppet("good", &good)]).await).await;
        let caller = Caller::of(era, &door).await;
        let first = caller.ask("resources/list", json!({})).await;
        assert_eq!(column(&first, "resources", "uri").len(), 1000);
        let cursor = first["result"]["nextCursor"].clone();
        let second = caller.ask("resources/list", json!({"cursor": cursor})).await;
        assert_eq!(column(&second, "resources", "uri"), ["x://1000"]);
        assert!(second["result"].get("nextCursor").is_none());
        let wrong = caller.ask("resources/list", json!({"cursor": "p7"})).await;
        assert_eq!(wrong["error"]["code"], -32602, "{wrong}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l92_whoever_is_given_some_tools_of_a_server_sees_nothing_else_of_it() {
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let mut rules = CallerTable::default();
    rules.insert("ann", CallerRules::new(["docs"], []).unwrap());
    rules.insert("bob", CallerRules::new([], ["docs/echo"]).unwrap());
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let script = able(era)
            .on("prompts/list", reply(json!({"prompts": [{"name": "greet"}]})))
            .on("resources/list", reply(json!({"resources": [{"uri": "x://a", "name": "a"}]})))
            .on("resources/read", reply(json!({"contents": []})))
            .log(&log);
        let callers = Callers::default().keys([key("ann"), key("bob")]);
        let docs = host([puppet("docs", &script)]).await;
        let door = open_with(docs, |b| b.callers(callers).rules(rules.clone())).await;
        let ask = async |caller: &str, method: &str, params: Value| {
            let bearer = format!("Bearer {caller}");
            door.modern_with(method, params, &[("authorization", &bearer)]).await.json()
        };
        let listed = ask("ann", "prompts/list", json!({})).await;
        assert_eq!(column(&listed, "prompts", "name"), ["docs_greet"]);
        let read = ask("ann", "resources/read", json!({"uri": "x://a"})).await;
        assert!(read["result"].is_object(), "{read}");
        let asked = received(&log).len();
        let declared = ask("bob", "server/discover", json!({})).await;
        assert_eq!(declared["result"]["capabilities"], json!({"tools": {"listChanged": true}}));
        for (method, params) in [
            ("prompts/list", json!({})),
            ("prompts/get", json!({"name": "docs_greet"})),
            ("resources/list", json!({})),
            ("resources/read", json!({"uri": "wharf+docs:x://a"})),
        ] {
            assert_eq!(ask("bob", method, params).await["error"]["code"], -32601, "{method}");
        }
        assert_eq!(received(&log).len(), asked, "the server heard nothing of it");
        door.host.close().await;
    }
}
