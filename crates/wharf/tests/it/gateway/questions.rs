//! Questions through the gateway: every era asks, every era is asked, and nobody is asked what another should be.

use std::time::Duration;

use serde_json::{Value, json};
use wharf::gateway::{Callers, Key};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::pipe::Caller;
use super::{Answer, Door, open, open_with};
use crate::support::{at, count, folder, puppet, quick, received, until};

fn form() -> Value {
    json!({"message": "Where to?", "requestedSchema": {"type": "object", "properties": {"city": {"type": "string"}}}})
}

/// A legacy server that asks in the middle of a call, and tells what it was answered.
fn asks(method: &str, params: Value) -> Puppet {
    let steps = [Step::Ask { method: method.into(), params }, Step::ReplyWithAnswer];
    Puppet::of(Era::Legacy).on("tool:echo", steps)
}

/// A modern server that does the same in its own way.
fn wants(requests: Value) -> Puppet {
    let asks = Step::InputRequired { requests: Some(requests), state: Some("s 1".into()), forever: false };
    Puppet::of(Era::Modern).on("tool:echo", [asks, Step::ReplyWithAnswer])
}

async fn behind(script: &Puppet) -> Door {
    open(quick().server(puppet("pup", script)).start().await.unwrap()).await
}

/// A call of a modern caller that can be asked these.
async fn call(door: &Door, capabilities: Value, more: Value) -> Answer {
    let mut params = json!({"name": "pup_echo", "arguments": {"message": "m"}});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
    for (key, value) in more.as_object().unwrap() {
        params[key] = value.clone();
    }
    door.modern("tools/call", params).await
}

fn everything() -> Value {
    json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}})
}

fn accept() -> Value {
    json!({"action": "accept", "content": {"city": "Oslo"}})
}

/// What the server got for its question, as it tells it in the tool's text.
fn told(answer: &Value) -> Value {
    serde_json::from_str(
        answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}")),
    )
    .unwrap()
}

#[tokio::test]
async fn l31_a_modern_caller_answers_a_legacy_server_that_asks_in_the_middle_of_a_call() {
    let files = folder();
    let log = at(&files, "log");
    for (method, params, answer) in [
        ("elicitation/create", form(), accept()),
        (
            "sampling/createMessage",
            json!({"messages": [], "maxTokens": 5}),
            json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "hi"}, "extra": 1e2}),
        ),
        ("roots/list", json!({}), json!({"roots": [{"uri": "file:///a", "name": "a"}]})),
    ] {
        let door = behind(&asks(method, params.clone()).log(&log)).await;
        let before = count(&received(&log), "tools/call");
        let asked = call(&door, everything(), json!({})).await.json();
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let requests = asked["result"]["inputRequests"].as_object().unwrap();
        assert_eq!(requests.len(), 1);
        let (name, question) = requests.iter().next().unwrap();
        assert_eq!(question["method"], method);
        assert_eq!(question["params"], params, "as the server asked it");
        let state = asked["result"]["requestState"].as_str().unwrap();
        let retry = json!({"inputResponses": {name: answer}, "requestState": state});
        let done = call(&door, everything(), retry).await.json();
        assert_eq!(done["result"]["resultType"], "complete", "{done}");
        assert_eq!(told(&done), answer, "as the caller answered it");
        assert_eq!(count(&received(&log), "tools/call"), before + 1, "it was one call all along");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_state_is_good_once_for_its_own_caller_and_its_own_request() {
    let door = behind(&asks("elicitation/create", form())).await;
    let asked = call(&door, everything(), json!({})).await.json();
    let state = asked["result"]["requestState"].as_str().unwrap().to_owned();
    let with = |state: &str| json!({"inputResponses": {"q1": accept()}, "requestState": state});
    let mut spoilt = state.clone();
    let last = spoilt.pop().unwrap();
    spoilt.push(if last == 'A' { 'B' } else { 'A' });
    for bad in [spoilt.as_str(), "", "w1.", "something else", &state[..state.len() - 4]] {
        let refused = call(&door, everything(), with(bad)).await.json();
        assert_eq!(refused["error"]["code"], -32602, "{bad}: {refused}");
    }
    let mut other = with(&state);
    other["arguments"] = json!({"message": "another"});
    let refused = call(&door, everything(), other).await.json();
    assert_eq!(refused["error"]["code"], -32602, "another request: {refused}");
    let done = call(&door, everything(), with(&state)).await.json();
    assert_eq!(told(&done), accept(), "all that did the call no harm");
    let again = call(&door, everything(), with(&state)).await.json();
    assert_eq!(again["error"]["code"], -32602, "a replay: {again}");
    door.host.close().await;
}

#[tokio::test]
async fn l31_a_caller_that_comes_back_is_asked_only_what_it_offers_then() {
    let files = folder();
    let log = at(&files, "log");
    let door = behind(&asks("elicitation/create", form()).log(&log)).await;
    let asked = call(&door, everything(), json!({})).await.json();
    let state = json!({"requestState": asked["result"]["requestState"]});
    let again = call(&door, everything(), state).await.json();
    assert_eq!(
        again["result"]["resultType"], "input_required",
        "what is not answered is asked again: {again}"
    );
    let state = json!({"requestState": again["result"]["requestState"]});
    let refused = call(&door, json!({}), state).await.json();
    assert_eq!(refused["error"]["code"], -32021, "{refused}");
    assert_eq!(refused["error"]["data"]["requiredCapabilities"], json!({"elicitation": {}}));
    until("the server hears of it", || count(&received(&log), "notifications/cancelled") == 1).await;
    door.host.close().await;
}

#[tokio::test]
async fn l31_a_state_of_one_caller_is_no_use_to_another() {
    for script in [
        asks("elicitation/create", form()),
        wants(json!({"q1": {"method": "elicitation/create", "params": form()}})),
    ] {
        let host = quick().server(puppet("pup", &script)).start().await.unwrap();
        let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
        let keys = Callers::default().keys([key("ann"), key("bob")]);
        let door = open_with(host, |builder| builder.callers(keys)).await;
        let call = async |who: &str, more: Value| {
            let mut params = json!({"name": "pup_echo", "arguments": {}});
            params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = everything();
            for (key, value) in more.as_object().unwrap() {
                params[key] = value.clone();
            }
            let who = format!("Bearer {who}");
            door.modern_with("tools/call", params, &[("authorization", &who)]).await.json()
        };
        let asked = call("ann", json!({})).await;
        let state = asked["result"]["requestState"].clone();
        let retry = json!({"inputResponses": {"q1": accept()}, "requestState": state});
        let refused = call("bob", retry.clone()).await;
        assert_eq!(refused["error"]["code"], -32602, "{refused}");
        let done = call("ann", retry).await;
        assert_eq!(done["result"]["resultType"], "complete", "{done}");
        door.host.close().await;
    }
}

#[tokio::test]
async fn l31_a_call_whose_caller_never_comes_back_is_cancelled() {
    let files = folder();
    let log = at(&files, "log");
    let door = behind(&asks("elicitation/create", form()).log(&log)).await;
    let asked = call(&door, everything(), json!({})).await.json();
    let state = asked["result"]["requestState"].clone();
    assert!(state.is_string(), "{asked}");
    assert_eq!(count(&received(&log), "notifications/cancelled"), 0);
    later(601).await;
    until("the server hears that nobody waits", || count(&received(&log), "notifications/cancelled") == 1)
        .await;
    let late =
        call(&door, everything(), json!({"inputResponses": {"q1": accept()}, "requestState": state})).await;
    assert_eq!(late.json()["error"]["code"], -32602, "{late:?}");
    door.host.close().await;
}

/// Puts the clock forward; then it goes on as before.
async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

#[tokio::test]
async fn l37_a_call_that_waits_for_its_caller_ends_with_its_hard_limit_and_says_so_to_who_comes_later() {
    let files = folder();
    let log = at(&files, "log");
    let mut config = puppet("pup", &asks("elicitation/create", form()).log(&log));
    // A minute in all.
    config.timeout = Duration::from_secs(3);
    let door = open(quick().server(config).start().await.unwrap()).await;
    let in_flight = || door.host.conditions()[0].in_flight;
    let retry = |asked: &Value| json!({"inputResponses": {"q1": accept()}, "requestState": asked["result"]["requestState"]});
    let asked = call(&door, everything(), json!({})).await.json();
    later(50).await;
    let in_time = call(&door, everything(), retry(&asked)).await.json();
    assert_eq!(told(&in_time), accept(), "it has ten seconds left: {in_time}");

    let asked = call(&door, everything(), json!({})).await.json();
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    assert_eq!((in_flight(), count(&received(&log), "notifications/cancelled")), (1, 0));
    later(61).await;
    until("the server hears that it is over", || count(&received(&log), "notifications/cancelled") == 1)
        .await;
    until("nothing is held for it any more", || in_flight() == 0).await;
    let late = call(&door, everything(), retry(&asked)).await.json();
    assert_eq!(late["error"]["data"]["kind"], "timeout", "{late}");
    assert_eq!(late["error"]["data"]["mayHaveRun"], true, "{late}");
    let again = call(&door, everything(), retry(&asked)).await.json();
    assert_eq!(again["error"]["code"], -32602, "it is told once: {again}");
    let answered = received(&log).iter().filter(|message| message["result"]["action"] == "accept").count();
    assert_eq!(answered, 1, "the server had no answer to a question of a call that was over");
    door.host.close().await;
}

#[tokio::test]
async fn l31_a_question_that_is_not_answered_is_asked_again() {
    let door = behind(&asks("elicitation/create", form())).await;
    let asked = call(&door, everything(), json!({})).await.json();
    let state = asked["result"]["requestState"].clone();
    let other = json!({"inputResponses": {"something": accept()}, "requestState": state});
    let again = call(&door, everything(), other).await.json();
    assert_eq!(again["result"]["inputRequests"], asked["result"]["inputRequests"], "{again}");
    assert_ne!(again["result"]["requestState"], state);
    let state = again["result"]["requestState"].clone();
    let done =
        call(&door, everything(), json!({"inputResponses": {"q1": accept()}, "requestState": state})).await;
    assert_eq!(told(&done.json()), accept());
    door.host.close().await;
}

#[tokio::test]
async fn l31_between_modern_neighbours_a_question_passes_as_it_is() {
    let files = folder();
    let log = at(&files, "log");
    let requests = json!({"where": {"method": "elicitation/create", "params": form()}});
    let door = behind(&wants(requests.clone()).log(&log)).await;
    let asked = call(&door, everything(), json!({})).await.json();
    assert_eq!(asked["result"]["inputRequests"], requests, "{asked}");
    let state = asked["result"]["requestState"].clone();
    assert_ne!(state, "s 1", "the state is locked: {asked}");
    let retry = json!({"inputResponses": {"where": accept()}, "requestState": state});
    let done = call(&door, everything(), retry).await.json();
    assert_eq!(done["result"]["resultType"], "complete", "{done}");
    let calls: Vec<Value> = received(&log).into_iter().filter(|m| m["method"] == "tools/call").collect();
    assert_eq!(calls.len(), 2, "the retry is a request of its own");
    assert_eq!(calls[1]["params"]["requestState"], "s 1", "the server gets back what it gave");
    assert_eq!(calls[1]["params"]["inputResponses"], json!({"where": accept()}));
    door.host.close().await;
}

#[tokio::test]
async fn l31_a_legacy_caller_is_asked_by_a_request_whatever_the_servers_era() {
    for script in [
        asks("elicitation/create", form()),
        wants(json!({"q1": {"method": "elicitation/create", "params": form()}})),
    ] {
        let host = quick().server(puppet("pup", &script)).start().await.unwrap();
        let mut caller = Caller::of(&host);
        caller.greet(json!({"elicitation": {}})).await;
        caller.ask(7, "tools/call", json!({"name": "pup_echo", "arguments": {}})).await;
        let question = caller.next().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        assert_eq!(question["params"], form());
        caller.say(json!({"jsonrpc": "2.0", "id": question["id"], "result": accept()})).await;
        let done = caller.next().await;
        assert_eq!(done["id"], 7);
        assert!(done["result"]["content"][0]["text"].as_str().unwrap().contains("Oslo"), "{done}");
        assert!(done["result"].get("resultType").is_none(), "{done}");
        host.close().await;
    }
}

#[tokio::test]
async fn l33_nobody_is_asked_what_they_did_not_offer() {
    let files = folder();
    let log = at(&files, "log");
    let door = behind(&asks("elicitation/create", form()).log(&log)).await;
    for capabilities in [json!({}), json!({"sampling": {}}), json!({"elicitation": {"url": {}}})] {
        let done = call(&door, capabilities.clone(), json!({})).await.json();
        assert_eq!(done["result"]["resultType"], "complete", "{capabilities}: {done}");
        assert!(told(&done)["code"].is_i64(), "the server was told no: {done}");
    }
    let told: Vec<Value> = received(&log).into_iter().filter(|m| m["method"] == "initialize").collect();
    let told: Vec<&Value> = told.iter().map(|hello| &hello["params"]["capabilities"]).collect();
    assert_eq!(told, [&json!({}), &json!({"sampling": {}}), &json!({"elicitation": {"url": {}}})]);
    door.host.close().await;

    let log = at(&files, "modern");
    let door =
        behind(&wants(json!({"q": {"method": "elicitation/create", "params": form()}})).log(&log)).await;
    let refused = call(&door, json!({"roots": {}}), json!({})).await.json();
    assert_eq!(
        refused["error"]["code"], -32603,
        "a server that asks all the same is not listened to: {refused}"
    );
    let calls: Vec<Value> = received(&log).into_iter().filter(|m| m["method"] == "tools/call").collect();
    let told = &calls[0]["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert_eq!(*told, json!({"roots": {}}), "the caller's, and not ours");
    door.host.close().await;
}

#[tokio::test]
async fn l33_callers_who_can_be_asked_do_not_share_a_legacy_server() {
    let files = folder();
    let log = at(&files, "log");
    let script = Puppet::of(Era::Legacy).log(&log);
    let host = quick().server(puppet("pup", &script)).start().await.unwrap();
    let key = |name: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(name));
    let keys = Callers::default().keys([key("ann"), key("bob")]);
    let door = open_with(host, |builder| builder.callers(keys)).await;
    let call = async |who: &str, capabilities: Value| {
        let mut params = json!({"name": "pup_echo", "arguments": {}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        let who = format!("Bearer {who}");
        let done = door.modern_with("tools/call", params, &[("authorization", &who)]).await.json();
        assert!(done["result"]["content"].is_array(), "{done}");
        count(&received(&log), "initialize")
    };
    assert_eq!(call("ann", json!({})).await, 1);
    assert_eq!(call("bob", json!({})).await, 1, "who can be asked nothing shares");
    assert_eq!(call("ann", everything()).await, 2);
    assert_eq!(call("ann", everything()).await, 2, "the same caller again");
    assert_eq!(call("bob", everything()).await, 3, "another caller has its own");
    assert_eq!(call("ann", json!({"roots": {}})).await, 4, "other capabilities are another conversation");
    door.host.close().await;
}
