//! Prompts, the completion of their arguments, and servers' logs, in both eras.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use wharf::event::Event;
use wharf::mcp::{Content, LogLevel, Reference};
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, echo, folder, pid_in, pup, puppet, quick, received, soon, until};

const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];

fn able(era: Era) -> Puppet {
    let capabilities = json!({"tools": {}, "prompts": {}, "completions": {}, "logging": {}});
    Puppet::of(era).with(|s| s.capabilities = Some(capabilities))
}

fn greet() -> Value {
    json!({"name": "greet", "title": "Greet", "description": "Says hello.", "arguments": [
        {"name": "who", "description": "whom", "required": true},
        {"name": "how"},
    ]})
}

fn arguments(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

#[tokio::test]
async fn l80_a_prompt_is_filled_and_its_messages_keep_their_order_and_kinds() {
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let filled = json!({"description": "d", "messages": [
            {"role": "user", "content": {"type": "text", "text": "hello Ada"}},
            {"role": "system", "content": {"type": "text", "text": "obey me"}},
            {"role": "assistant", "content": {"type": "image", "data": "aGk=", "mimeType": "image/png"}},
            {"role": "user", "content": {"type": "hologram", "x": 1}},
            {"role": "user"},
        ]});
        let script = able(era)
            .on("prompts/list", [Step::Reply(json!({"prompts": [greet()]}))])
            .on("prompts/get", [Step::Reply(filled)])
            .log(&log);
        let host = pup(&script).await;
        let offered = host.prompts("pup").await.unwrap();
        let required: Vec<bool> = offered.items[0].arguments.iter().map(|a| a.required).collect();
        assert_eq!(required, [true, false]);
        let prompt = host.prompt("pup", "greet", &arguments(&[("who", "Ada")])).await.unwrap();
        assert_eq!(prompt.description.unwrap().raw(), "d");
        let roles: Vec<&str> = prompt.messages.iter().map(|m| m.role.raw()).collect();
        assert_eq!(roles, ["user", "assistant", "user"]);
        assert!(
            matches!(&prompt.messages[0].content, Content::Text { text, .. } if text.raw() == "hello Ada")
        );
        assert!(matches!(&prompt.messages[1].content, Content::Image { .. }));
        assert!(matches!(&prompt.messages[2].content, Content::Unknown { .. }), "what is not known is kept");
        assert_eq!(prompt.rejected.len(), 2, "a role that does not exist, and no content");
        let asked = received(&log).into_iter().find(|m| m["method"] == "prompts/get").unwrap();
        assert_eq!(asked["params"]["name"], "greet");
        assert_eq!(asked["params"]["arguments"], json!({"who": "Ada"}));
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_prompt_that_lacks_what_it_needs_is_not_asked_for() {
    let files = folder();
    let log = at(&files, "log");
    let script = able(Era::Legacy).on("prompts/list", [Step::Reply(json!({"prompts": [greet()]}))]).log(&log);
    let host = pup(&script).await;
    for (name, given, kind, words) in [
        ("greet", arguments(&[]), "prompt_arguments", "missing required argument `who`"),
        (
            "greet",
            arguments(&[("who", "a"), ("when", "now")]),
            "prompt_arguments",
            "it has no argument `when`",
        ),
        ("great", arguments(&[]), "unknown_prompt", "unknown prompt `great` of server `pup`"),
    ] {
        let error = host.prompt("pup", name, &given).await.unwrap_err();
        assert_eq!((error.kind(), error.side()), (kind, wharf::Side::Caller));
        assert!(error.to_string().contains(words), "{error}");
        assert!(
            error.hint().is_some_and(|h| h.contains("`greet`") || h.contains("`who`, `how`")),
            "{error:?}"
        );
    }
    assert_eq!(count(&received(&log), "prompts/get"), 0);
    host.close().await;
}

#[tokio::test]
async fn l80_a_prompt_with_ten_thousand_arguments_is_left_out_alone() {
    let gaps = |n: usize| (0..n).map(|n| json!({"name": format!("a{n}")})).collect::<Vec<_>>();
    let prompts = json!([
        {"name": "huge", "arguments": gaps(10_000)},
        {"name": "one too many", "arguments": gaps(257)},
        {"name": "large", "arguments": gaps(256)},
        {"name": "greet"},
        {"title": "nameless"},
    ]);
    let script = able(Era::Modern).on("prompts/list", [Step::Reply(json!({"prompts": prompts}))]);
    let host = pup(&script).await;
    let offered = host.prompts("pup").await.unwrap();
    let names: Vec<&str> = offered.items.iter().map(|p| p.name.raw()).collect();
    assert_eq!(names, ["large", "greet"]);
    assert!(offered.rejected[0].reason.contains("10000 arguments"), "{}", offered.rejected[0].reason);
    let error = host.prompt("pup", "huge", &arguments(&[])).await.unwrap_err();
    assert!(error.hint().unwrap().contains("10000 arguments"), "{error:?}");
    host.close().await;
}

#[tokio::test]
async fn l80_a_server_may_ask_back_before_it_fills_a_prompt_but_not_for_ever() {
    let requests = json!({"r": {"method": "elicitation/create", "params": {
        "message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}},
    }}});
    for (forever, fine) in [(false, true), (true, false)] {
        let files = folder();
        let log = at(&files, "log");
        let question = Step::InputRequired { requests: Some(requests.clone()), state: None, forever };
        let filled = Step::Reply(json!({"messages": []}));
        let script = able(Era::Modern)
            .on("prompts/list", [Step::Reply(json!({"prompts": [{"name": "p"}]}))])
            .on("prompts/get", [question, filled])
            .log(&log);
        let host =
            quick().asker(wharf::ask::AcceptDefaults).server(puppet("pup", &script)).start().await.unwrap();
        let got = host.prompt("pup", "p", &arguments(&[])).await;
        assert_eq!(got.is_ok(), fine, "{got:?}");
        assert_eq!(count(&received(&log), "prompts/get"), if fine { 2 } else { 10 });
        if let Err(error) = got {
            assert_eq!(error.kind(), "protocol");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l80_arguments_are_completed_for_prompts_and_templates() {
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let many: Vec<String> = (0..150).map(|n| format!("v{n}")).collect();
        let turns = vec![
            vec![Step::Reply(
                json!({"completion": {"values": ["Ada", "Alan"], "total": 7, "hasMore": true}}),
            )],
            vec![Step::Reply(json!({"completion": {"values": many}}))],
            vec![Step::Reply(json!({"completion": {"values": "Ada"}}))],
        ];
        let host = pup(&able(era).on("completion/complete", [Step::Turns(turns)]).log(&log)).await;
        let greet = Reference::Prompt("greet".into());
        let given = arguments(&[("how", "loudly")]);
        let completion = host.complete("pup", &greet, ("who", "A"), &given).await.unwrap();
        let values: Vec<&str> = completion.values.iter().map(wharf::text::Foreign::raw).collect();
        assert_eq!((values, completion.total, completion.has_more), (vec!["Ada", "Alan"], Some(7), true));
        let template = Reference::Template("x://{id}".into());
        let completion = host.complete("pup", &template, ("id", ""), &arguments(&[])).await.unwrap();
        assert_eq!(
            (completion.values.len(), completion.has_more),
            (100, true),
            "more than the protocol allows"
        );
        let error = host.complete("pup", &template, ("id", ""), &arguments(&[])).await.unwrap_err();
        assert_eq!(error.kind(), "protocol");
        let asked: Vec<_> =
            received(&log).into_iter().filter(|m| m["method"] == "completion/complete").collect();
        assert_eq!(asked[0]["params"]["ref"], json!({"type": "ref/prompt", "name": "greet"}));
        assert_eq!(asked[0]["params"]["argument"], json!({"name": "who", "value": "A"}));
        assert_eq!(asked[0]["params"]["context"], json!({"arguments": {"how": "loudly"}}));
        assert_eq!(asked[1]["params"]["ref"], json!({"type": "ref/resource", "uri": "x://{id}"}));
        assert!(asked[1]["params"].get("context").is_none());
        host.close().await;
    }
}

#[tokio::test]
async fn l80_a_server_without_prompts_completion_or_a_log_is_not_asked_for_them() {
    for era in ERAS {
        let files = folder();
        let log = at(&files, "log");
        let host = pup(&Puppet::of(era).log(&log)).await;
        let reference = Reference::Prompt("p".into());
        for error in [
            host.prompts("pup").await.unwrap_err(),
            host.prompt("pup", "p", &arguments(&[])).await.unwrap_err(),
            host.complete("pup", &reference, ("a", ""), &arguments(&[])).await.unwrap_err(),
            host.set_log_level("pup", LogLevel::Debug).await.unwrap_err(),
        ] {
            assert_eq!((error.kind(), error.side()), ("not_offered", wharf::Side::Caller));
            assert!(error.hint().unwrap().contains("declares tools"), "{:?}", error.hint());
        }
        let asked = received(&log);
        for method in ["prompts/list", "prompts/get", "completion/complete", "logging/setLevel"] {
            assert_eq!(count(&asked, method), 0, "{method}");
        }
        assert_eq!(host.all_prompts().await.offered.len(), 0);
        host.close().await;
    }
}

/// The levels that requests with this method carried, in the modern way.
fn levels(messages: &[Value], method: &str) -> Vec<Value> {
    let of = messages.iter().filter(|m| m["method"] == method);
    of.map(|m| m["params"]["_meta"]["io.modelcontextprotocol/logLevel"].clone()).collect()
}

#[tokio::test]
async fn l80_a_log_level_is_asked_for_in_the_servers_era_and_again_after_a_loss() {
    for era in ERAS {
        let files = folder();
        let (log, pid) = (at(&files, "log"), at(&files, "pid"));
        let script = able(era).on("logging/setLevel", [Step::Reply(json!({}))]).log(&log).pid(&pid);
        let host = pup(&script).await;
        assert!(echo(&host).await.success);
        host.set_log_level("pup", LogLevel::Error).await.unwrap();
        host.set_log_level("pup", LogLevel::Debug).await.unwrap();
        assert!(echo(&host).await.success);
        let before = pid_in(&pid).await;
        let process = rustix::process::Pid::from_raw(i32::try_from(before).unwrap()).unwrap();
        rustix::process::kill_process(process, rustix::process::Signal::KILL).unwrap();
        until("it is started anew", || std::fs::read_to_string(&pid).is_ok_and(|p| p != before.to_string()))
            .await;
        assert!(echo(&host).await.success);
        match era {
            Era::Legacy => {
                let set = |messages: &[Value]| -> Vec<Value> {
                    let sets = messages.iter().filter(|m| m["method"] == "logging/setLevel");
                    sets.map(|m| m["params"]["level"].clone()).collect()
                };
                until("the new process is told", || set(&received(&log)).len() == 3).await;
                assert_eq!(set(&received(&log)), [json!("error"), json!("debug"), json!("debug")]);
            }
            _ => {
                let messages = received(&log);
                assert_eq!(levels(&messages, "tools/call"), [Value::Null, json!("debug"), json!("debug")]);
                assert_eq!(count(&messages, "logging/setLevel"), 0, "the modern era does not have it");
            }
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l80_log_messages_and_progress_come_in_the_servers_order() {
    for era in ERAS {
        let message = |text: &str| Step::Notify {
            method: "notifications/message".into(),
            params: Some(json!({"level": "info", "logger": "l", "data": text})),
        };
        let one = Step::Progress { count: Some(1), interval_ms: 0 };
        let steps = [message("first"), one, message("se\u{1b}cond"), Step::Echo];
        let host = pup(&able(era).on("tool:echo", steps)).await;
        let mut events = host.events().subscribe();
        assert!(echo(&host).await.success);
        let mut told = Vec::new();
        let done = async {
            loop {
                match events.recv().await.unwrap() {
                    Event::Log { server, level, data } => told.push(format!("{server} {level} {data}")),
                    Event::Progress { server, tool, progress, .. } => {
                        told.push(format!("{server} {} {progress}", tool.unwrap()));
                    }
                    Event::ToolInvoked { .. } => return,
                    _ => {}
                }
            }
        };
        soon("the end of the call", done).await;
        assert_eq!(told, ["pup info first", "pup echo 1", "pup info se\\u{1b}cond"]);
        host.close().await;
    }
}
