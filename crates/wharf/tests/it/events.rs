//! What is told of calls: who, what, how it ended. Whoever listens slowly slows nobody down.

use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::TryRecvError;
use wharf::ask::Answer;
use wharf::event::{Event, Invocation};
use wharf::host::{Docking, NoArguments};
use wharf::names::CallerName;
use wharf::policy::{Permission, Reach};
use wharf::wire::Json;
use wharf::{CallOptions, LocalTool};
use wharf_testkit::{Puppet, Step};

use crate::sessions::Person;
use crate::support::{host, puppet, soon, within};

/// The calls that were told of so far.
fn calls(events: &mut Receiver<Event>) -> Vec<std::sync::Arc<Invocation>> {
    let mut calls = Vec::new();
    loop {
        match events.try_recv() {
            Ok(Event::ToolInvoked(call)) => calls.push(call),
            Ok(_) => {}
            Err(TryRecvError::Empty) => return calls,
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test]
async fn l60_every_call_is_told_with_caller_source_arguments_result_and_time() {
    let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let script = Puppet::new()
        .plain_tool("echo")
        .plain_tool("fails")
        .plain_tool("refuses")
        .on("tool:fails", [Step::Reply(failed.clone())])
        .on("tool:refuses", [Step::ReplyError { code: 1, message: "no".into(), data: None }]);
    let host = host([puppet("pup", &script)]).await;
    host.register(LocalTool::new("local", "Here", async |_: NoArguments, _| Ok::<_, String>("here")))
        .unwrap();
    host.tools().await;
    let mut events = host.events().subscribe();

    let arguments = json!({"message": "hi", "password": "hunter22"});
    let options = CallOptions { caller: Some(CallerName::parse("cook").unwrap()), ..CallOptions::default() };
    let outcome = host.call_with("pup_echo", Json::from(arguments), options).await;
    let told = calls(&mut events);
    let [call] = &told[..] else { panic!("{told:?}") };
    assert_eq!((call.caller.as_str(), call.server.as_str(), call.tool.as_str()), ("cook", "pup", "echo"));
    assert_eq!((call.local, call.success, call.error, call.took), (false, true, None, outcome.took));
    assert_eq!(call.arguments().to_value(), json!({"message": "hi", "password": "***"}));
    assert_eq!(call.result().to_value()["content"][0]["type"], "text");

    assert!(host.call("local", json!({})).await.success);
    let told = calls(&mut events);
    let [call] = &told[..] else { panic!("{told:?}") };
    assert_eq!((call.caller.as_str(), call.server.as_str(), call.tool.as_str()), ("local", "local", "local"));
    assert!(call.local && call.success);
    assert_eq!(call.result().to_value()["content"][0]["text"], "here");

    for (tool, arguments, error, result) in [
        ("pup_fails", json!({}), None, failed),
        ("pup_refuses", json!({}), Some("tool"), json!(null)),
        ("pup_echo", json!([]), Some("arguments"), json!(null)),
        ("local", json!([]), Some("arguments"), json!(null)),
    ] {
        host.call(tool, arguments.clone()).await;
        let told = calls(&mut events);
        let [call] = &told[..] else { panic!("{told:?}") };
        let mut shown = call.result().to_value();
        shown.as_object_mut().map(|members| members.remove("resultType"));
        assert_eq!((call.success, call.error, shown), (false, error, result), "{tool}");
        assert_eq!(call.arguments().to_value(), arguments);
    }
    host.close().await;
}

#[tokio::test]
async fn l60_an_agent_is_told_of_by_its_own_name_and_so_is_who_was_asked() {
    let host = host([]).await;
    let person = Person::who_says([Answer::Decline, Answer::Allow(Reach::Once)]);
    let session = host.session("main").permission(Permission::Trusted).asker(person).start().unwrap();
    session.connect(Docking::new(puppet("pup", &Puppet::new()))).await.unwrap();
    let mut events = host.events().subscribe();
    for (allowed, error) in [(false, Some("denied")), (true, None)] {
        let options = CallOptions { caller: Some(CallerName::local()), ..CallOptions::default() };
        session.call_with("pup_echo", Json::empty_object(), options).await;
        let mut told = Vec::new();
        while let Ok(event) = events.try_recv() {
            told.push(event);
        }
        let refused = told.extract_if(.., |event| matches!(event, Event::Refused(_))).count();
        assert_eq!(refused, usize::from(!allowed), "what a rule refuses is told of");
        let [Event::Consent { caller, server, tool, allowed: said }, Event::ToolInvoked(call)] = &told[..]
        else {
            panic!("{told:?}")
        };
        assert_eq!(
            (caller.as_str(), server.as_str(), tool.as_str(), *said),
            ("main", "pup", "echo", allowed)
        );
        assert_eq!((call.caller.as_str(), call.error), ("main", error), "nobody speaks for another here");
    }
    host.close().await;
}

#[tokio::test(start_paused = true)]
async fn l60_a_late_call_is_told_of_too() {
    let host = host([]).await;
    let waits = LocalTool::new("waits", "Waits", async |_: NoArguments, _| {
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok::<_, String>("")
    });
    host.register(waits).unwrap();
    let mut events = host.events().subscribe();
    let second = Duration::from_secs(1);
    host.call_with("waits", Json::empty_object(), within(second, None)).await;
    let told = calls(&mut events);
    assert_eq!((told[0].error, told[0].took), (Some("timeout"), second));
}

#[tokio::test]
async fn l60_a_slow_listener_loses_the_oldest_with_a_count_and_slows_nobody_down() {
    const CALLS: u64 = 3000;
    let host = host([]).await;
    let count =
        LocalTool::new("count", "Counts", async |_: serde_json::Map<String, serde_json::Value>, _| {
            Ok::<_, String>("")
        });
    host.register(count).unwrap();
    let (mut slow, mut quick) = (host.events().subscribe(), host.events().subscribe());
    for number in 0..CALLS {
        // It never waits for the one who does not listen.
        assert!(soon("a call", host.call("count", json!({"number": number}))).await.success);
        assert_eq!(calls(&mut quick).len(), 1, "whoever keeps up misses nothing");
    }
    let Err(TryRecvError::Lagged(lost)) = slow.try_recv() else { panic!("nothing was lost") };
    let left = calls(&mut slow);
    assert_eq!(lost + left.len() as u64, CALLS, "the count is the truth");
    assert!(!left.is_empty());
    for (place, call) in left.iter().enumerate() {
        assert_eq!(
            call.arguments().to_value(),
            json!({"number": lost + place as u64}),
            "the oldest were lost"
        );
    }
}
