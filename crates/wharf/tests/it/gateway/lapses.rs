//! Keys and tokens that end by themselves: with them ends what they let in, and a caller that comes with the next one
//! loses nothing that can be kept.

use std::time::{Duration, SystemTime};

use futures_util::StreamExt as _;
use http::{Method, StatusCode};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::{self, Message};
use wharf::gateway::{Callers, Key, Terms};
use wharf::names::CallerName;
use wharf_testkit::{Era, Puppet, Step};

use super::jwt::Issuer;
use super::terms::{Scene, Socket, bearer, is_ended, keys, last, legacy_with, only};
use super::{Door, open_with};
use crate::support::{at, count, folder, later, puppet, quick, received, soon, until};

const LAPSED: &str = "key or token was taken back or has expired";

fn by_token(issuer: &Issuer) -> Terms {
    Terms { tokens: Some(issuer.settings()), ..Terms::default() }
}

/// What comes next over a WebSocket, but signs of life.
async fn said(socket: &mut Socket) -> Option<Result<Message, tungstenite::Error>> {
    loop {
        match soon("something on the socket", socket.next()).await {
            Some(Ok(Message::Ping(_))) => {}
            said => return said,
        }
    }
}

fn ping() -> Value {
    json!({"jsonrpc": "2.0", "id": 1, "method": "ping"})
}

/// Everything that `who` can have under way ends by what `end` does, with words, and nothing that `other` has.
async fn all_ends(scene: &Scene, who: &str, other: &str, end: impl AsyncFnOnce()) {
    let (session, mut stream) = scene.greet(who).await;
    let mut listening = scene.listen(who).await;
    let mut sse = scene.door.stream(Method::GET, "/sse", &[("authorization", &bearer(who))], "").await;
    assert_eq!(sse.event().await.unwrap().name.as_deref(), Some("endpoint"));
    let before = scene.heard("one", "tools/call");
    let mut socket = scene.socket(who).await;
    until("its call is under way", || scene.heard("one", "tools/call") == before + 1).await;
    let lost = [scene.call(who, "one", None).await, scene.call(who, "two", Some(&session)).await];
    let kept = scene.call(other, "one", None).await;
    let (other_session, _other_stream) = scene.greet(other).await;
    end().await;
    for call in lost {
        let answer = soon("the call ends", call).await.unwrap();
        assert!(is_ended(&answer, LAPSED), "{answer:?}");
    }
    let word = soon("the stream ends", last(&mut listening)).await.expect("with a word");
    assert!(word["error"]["message"].as_str().unwrap().contains(LAPSED), "{word}");
    assert_eq!(soon("the session's stream ends", last(&mut stream)).await, None);
    assert_eq!(soon("the old stream ends", last(&mut sse)).await, None);
    let Some(Ok(Message::Text(word))) = said(&mut socket).await else { panic!("no word") };
    assert!(word.contains(LAPSED), "{word}");
    let closed = said(&mut socket).await;
    assert!(matches!(closed, Some(Ok(Message::Close(_)))), "{closed:?}");
    let there = legacy_with(&scene.door, &bearer(other), Some(&other_session), ping()).await;
    assert_eq!(there.status, StatusCode::OK, "{there:?}");
    assert!(!kept.is_finished());
    scene.let_go();
    let answer = soon("the other's call ends", kept).await.unwrap();
    assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
}

#[tokio::test]
async fn l92_what_a_token_let_in_ends_with_the_token() {
    let issuer = Issuer::start();
    let scene = Scene::new(Era::Modern, by_token(&issuer)).await;
    let (short, long) = (issuer.token(&scene.door, 60), issuer.token(&scene.door, 500));
    all_ends(&scene, &short, &long, async || later(Duration::from_secs(62)).await).await;
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_what_a_key_let_in_ends_when_it_lapses() {
    let scene = Scene::new(Era::Modern, keys(["ann1", "bob1"])).await;
    all_ends(&scene, "ann1", "bob1", async || {
        let key = |name: &str, secret: &str| Key::new(CallerName::parse(name).unwrap(), Key::hash(secret));
        let callers = [key("ann", "ann1").until(SystemTime::now()), key("bob", "bob1")];
        let terms = Terms { callers: Callers::default().keys(callers), ..Terms::default() };
        scene.door.gateway.adopt(terms).unwrap();
    })
    .await;
    assert_eq!(scene.status("ann1").await, StatusCode::UNAUTHORIZED);
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_what_tokens_let_in_ends_when_their_settings_are_others() {
    let issuer = Issuer::start();
    let with_key = || Terms { tokens: Some(issuer.settings()), ..keys(["bob1"]) };
    let scene = Scene::new(Era::Modern, with_key()).await;
    let token = issuer.token(&scene.door, 300);
    all_ends(&scene, &token, "bob1", async || {
        let mut terms = with_key();
        // The same settings are the same.
        scene.door.gateway.adopt(terms.clone()).unwrap();
        assert_eq!(scene.status(&token).await, StatusCode::OK);
        terms.tokens.as_mut().unwrap().scopes = vec!["mcp".into()];
        scene.door.gateway.adopt(terms).unwrap();
    })
    .await;
    assert_eq!(scene.status(&token).await, StatusCode::OK, "judged anew, it counts again");
    scene.door.host.close().await;
}

#[tokio::test]
async fn l92_a_session_goes_on_with_the_next_token_of_its_caller() {
    let issuer = Issuer::start();
    let scene = Scene::new(Era::Modern, by_token(&issuer)).await;
    let [short, next, long] = [60, 61, 500].map(|seconds| issuer.token(&scene.door, seconds));
    let (session, mut stream) = scene.greet(&short).await;
    let (lost, _lost_stream) = scene.greet(&short).await;
    let say = async |who: &str, session: &str| {
        legacy_with(&scene.door, &bearer(who), Some(session), ping()).await.status
    };
    // The last to come is not the last to end.
    for token in [&long, &next] {
        assert_eq!(say(token, &session).await, StatusCode::OK);
    }
    let call = scene.call(&long, "one", Some(&session)).await;
    let ended = scene.call(&short, "one", Some(&session)).await;
    later(Duration::from_secs(63)).await;
    let answer = soon("what the first token began ends", ended).await.unwrap();
    assert!(is_ended(&answer, LAPSED), "{answer:?}");
    assert_eq!(say(&long, &session).await, StatusCode::OK);
    assert_eq!(say(&long, &lost).await, StatusCode::NOT_FOUND, "its caller came with no other in time");
    assert!(!call.is_finished());
    scene.let_go();
    let answer = soon("the call ends", call).await.unwrap();
    assert!(only(&answer)["result"]["content"].is_array(), "{answer:?}");
    // Its stream is still read.
    scene
        .door
        .gateway
        .adopt(Terms { rules: super::terms::given(&[("*", &["one"])]), ..by_token(&issuer) })
        .unwrap();
    assert_eq!(stream.message().await.1["method"], "notifications/tools/list_changed");
    scene.door.host.close().await;
}

/// A call that is parked, or goes on, with what its caller can be asked.
async fn call(door: &Door, who: &str, more: Value) -> Value {
    let mut params = json!({"name": "pup_echo", "arguments": {}});
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    params.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    door.modern_with("tools/call", params, &[("authorization", &bearer(who))]).await.json()
}

#[tokio::test]
async fn l92_a_parked_call_ends_with_the_token_that_its_caller_came_by_last() {
    let files = folder();
    let log = at(&files, "log");
    let form = json!({"message": "?", "requestedSchema": {"type": "object", "properties": {}}});
    let ask = || Step::Ask { method: "elicitation/create".into(), params: form.clone() };
    let script = Puppet::of(Era::Legacy).log(&log).on("tool:echo", [ask(), ask(), Step::Honest]);
    let mut config = puppet("pup", &script);
    config.timeout = Duration::from_secs(600);
    let issuer = Issuer::start();
    let door = open_with(quick().server(config).start().await.unwrap(), |b| b.terms(by_token(&issuer))).await;
    let (short, long) = (issuer.token(&door, 60), issuer.token(&door, 500));
    let [left, moved] = [call(&door, &short, json!({})).await, call(&door, &short, json!({})).await];
    let retry = |asked: &Value, question: &str| {
        let accept = json!({question: {"action": "accept", "content": {}}});
        json!({"inputResponses": accept, "requestState": asked["result"]["requestState"]})
    };
    let moved = call(&door, &long, retry(&moved, "q1")).await;
    assert!(moved["result"]["requestState"].is_string(), "{moved}");
    assert_eq!(count(&received(&log), "notifications/cancelled"), 0);
    later(Duration::from_secs(62)).await;
    until("the server hears of one end", || count(&received(&log), "notifications/cancelled") == 1).await;
    let late = call(&door, &long, retry(&left, "q1")).await;
    assert_eq!(late["error"]["code"], -32602, "{late}");
    let done = call(&door, &long, retry(&moved, "q2")).await;
    assert_eq!(done["result"]["resultType"], "complete", "the other's went on: {done}");
    door.host.close().await;
}
