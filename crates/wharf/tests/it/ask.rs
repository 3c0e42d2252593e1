//! Questions in the middle of a call, in both eras: answered, declined, checked.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::Host;
use wharf::ask::{AcceptDefaults, Answer, Answered, Asker, Offers, Question};
use wharf::names::ServerName;
use wharf::wire::Json;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, echo, error, folder, puppet, quick, received, within};

/// Says what it was told to say, and keeps what it was asked.
#[derive(Clone)]
struct Says {
    offers: Offers,
    answer: Answer,
    asked: Arc<Mutex<Vec<Question>>>,
}

impl Asker for Says {
    fn offers(&self) -> Offers {
        self.offers
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        assert_eq!(server.as_str(), "pup");
        self.asked.lock().unwrap().push(question);
        Box::pin(std::future::ready(self.answer.clone()))
    }
}

fn says(answer: Answer) -> Says {
    let offers = Offers { forms: true, urls: true, sampling: true, roots: true };
    Says { offers, answer, asked: Arc::default() }
}

async fn asking(script: &Puppet, asker: impl Asker) -> Host {
    quick().asker(asker).server(puppet("pup", script)).start().await.unwrap()
}

fn form() -> Value {
    json!({
        "message": "Where to?",
        "requestedSchema": {"type": "object", "required": ["city"], "properties": {
            "city": {"type": "string", "default": "Bergen", "minLength": 2, "maxLength": 10},
            "days": {"type": "integer", "minimum": 1, "maximum": 30, "default": 3},
            "fast": {"type": "boolean"},
            "class": {"type": "string", "enum": ["first", "second"]},
        }},
    })
}

fn asks(method: &str, params: Value) -> Puppet {
    let steps = [Step::Ask { method: method.into(), params }, Step::ReplyWithAnswer];
    Puppet::of(Era::Legacy).on("tool:echo", steps)
}

/// What a legacy server got for its question.
async fn answered(script: &Puppet, asker: impl Asker) -> Value {
    let host = asking(script, asker).await;
    let outcome = echo(&host).await;
    assert!(outcome.success, "{outcome:?}");
    host.close().await;
    serde_json::from_str(&outcome.to_text()).unwrap()
}

#[tokio::test]
async fn l31_a_legacy_servers_form_is_filled_declined_or_closed() {
    let elicit = asks("elicitation/create", form());
    let accepted = answered(&elicit, AcceptDefaults).await;
    assert_eq!(accepted, json!({"action": "accept", "content": {"city": "Bergen", "days": 3}}));
    let full = json!({"city": "Oslo", "days": 30, "fast": true, "class": "second"});
    let accepted = answered(&elicit, says(Answer::Accept(Json::from(full.clone())))).await;
    assert_eq!(accepted, json!({"action": "accept", "content": full}));
    assert_eq!(answered(&elicit, says(Answer::Decline)).await, json!({"action": "decline"}));
    assert_eq!(answered(&elicit, says(Answer::Cancel)).await, json!({"action": "cancel"}));
    let host = quick().server(puppet("pup", &elicit)).start().await.unwrap();
    let said: Value = serde_json::from_str(&echo(&host).await.to_text()).unwrap();
    assert_eq!(said["code"], -32601, "by default nothing is offered, and nothing answered");
    host.close().await;
}

#[tokio::test]
async fn l31_what_is_filled_in_must_fit_the_form() {
    let elicit = asks("elicitation/create", form());
    for (content, word) in [
        (json!({"city": "O"}), "too short"),
        (json!({"city": "a city with a long name"}), "too long"),
        (json!({"city": 5}), "text"),
        (json!({"days": 0}), "too small"),
        (json!({"days": 31}), "too large"),
        (json!({"days": 1.5}), "whole"),
        (json!({"fast": "yes"}), "true or false"),
        (json!({"class": "third"}), "`first`, `second`"),
        (json!({"more": 1}), "no field `more`"),
        (json!("text"), "object"),
    ] {
        let said = answered(&elicit, says(Answer::Accept(Json::from(content.clone())))).await;
        assert!(said["message"].as_str().is_some_and(|m| m.contains(word)), "{content}: {said}");
    }
    let nested = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"a": {"type": "object"}}}});
    let said = answered(&asks("elicitation/create", nested), AcceptDefaults).await;
    assert_eq!(said["code"], -32602, "a form that is not flat is refused: {said}");
}

/// Takes its time to decline.
struct Slow(Duration);

impl Asker for Slow {
    fn offers(&self) -> Offers {
        Offers { forms: true, ..Offers::default() }
    }

    fn ask(&self, _: &ServerName, _: Question) -> Answered {
        let time = self.0;
        Box::pin(async move {
            tokio::time::sleep(time).await;
            Answer::Decline
        })
    }
}

#[tokio::test]
async fn l37_a_call_waits_for_whoever_is_asked_but_not_for_ever() {
    let elicit = asks("elicitation/create", form());
    let (short, long) = (Duration::from_millis(1500), Duration::from_millis(2500));
    for (hard, answered) in [(None, true), (Some(Duration::from_millis(2000)), false)] {
        let host = asking(&elicit, Slow(long)).await;
        host.tools().await;
        let outcome = host.call_with("pup_echo", Json::from(json!({})), within(short, hard)).await;
        assert_eq!(outcome.success, answered, "{outcome:?}");
        if !answered {
            assert_eq!(error(&outcome).kind(), "timeout");
        }
        host.close().await;
    }
}

#[tokio::test]
async fn l31_pages_models_and_folders_are_asked_for_where_they_are_offered() {
    let url =
        asks("elicitation/create", json!({"mode": "url", "message": "m", "url": "https://example.org/x"}));
    let asker = says(Answer::Accept(Json::from(json!({}))));
    assert_eq!(answered(&url, asker.clone()).await, json!({"action": "accept"}));
    let asked = asker.asked.lock().unwrap().pop();
    assert!(matches!(asked, Some(Question::Url { url, .. }) if url.raw() == "https://example.org/x"));
    assert_eq!(answered(&url, AcceptDefaults).await["code"], -32602, "forms were offered, pages were not");

    let result = json!({"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"});
    let sample = asks("sampling/createMessage", json!({"messages": [], "maxTokens": 5}));
    assert_eq!(answered(&sample, says(Answer::Result(Json::from(result.clone())))).await, result);
    assert_eq!(answered(&sample, says(Answer::Decline)).await["code"], -1);
    assert_eq!(answered(&sample, AcceptDefaults).await["code"], -32601);

    let roots = json!({"roots": [{"uri": "file:///work"}]});
    let list = asks("roots/list", json!({}));
    assert_eq!(answered(&list, says(Answer::Result(Json::from(roots.clone())))).await, roots);
}

#[tokio::test]
async fn l31_a_modern_server_gets_its_answers_and_its_state_back_as_it_gave_it() {
    let state = "opaque \u{1F512} \"quoted\" \\ \u{7f} /";
    let requests = json!({
        "b": {"method": "elicitation/create", "params": form()},
        "a": {"method": "roots/list"},
    });
    let answers = json!({"roots": []});
    for given in [Some(state.to_owned()), None] {
        let files = folder();
        let log = at(&files, "log");
        let question =
            Step::InputRequired { requests: Some(requests.clone()), state: given.clone(), forever: false };
        let script = Puppet::of(Era::Modern).on("tool:echo", [question, Step::ReplyWithAnswer]).log(&log);
        let host = asking(&script, says(Answer::Result(Json::from(answers.clone())))).await;
        let outcome = echo(&host).await;
        assert!(outcome.success, "{outcome:?}");
        let back: Value = serde_json::from_str(&outcome.to_text()).unwrap();
        assert_eq!(back, json!({"a": answers, "b": {"action": "decline"}}));
        let calls: Vec<_> = received(&log).into_iter().filter(|m| m["method"] == "tools/call").collect();
        assert_eq!(calls.len(), 2);
        assert_ne!(calls[0]["id"], calls[1]["id"], "a retry is a request of its own");
        assert_eq!(calls[0]["params"]["arguments"], calls[1]["params"]["arguments"]);
        assert!(calls[0]["params"].get("requestState").is_none());
        assert_eq!(calls[1]["params"].get("requestState"), given.map(Value::from).as_ref());
        host.close().await;
    }
}

#[tokio::test]
async fn l31_a_state_goes_back_byte_for_byte() {
    let files = folder();
    let log = at(&files, "log");
    let line = r#"{"jsonrpc":"2.0","id":$ID,"result":{"resultType":"input_required","requestState":"\u0041\/\u00e9"}}"#;
    let turns = vec![vec![Step::Raw(line.into())], vec![Step::Honest]];
    let script = Puppet::of(Era::Modern).on("tool:echo", [Step::Turns(turns)]).log(&log);
    let host = asking(&script, AcceptDefaults).await;
    assert!(echo(&host).await.success, "a state alone is an invitation to come again");
    let text = std::fs::read_to_string(&log).unwrap();
    assert!(text.contains(r#""requestState":"\u0041\/\u00e9""#), "{text}");
    assert!(!text.contains("inputResponses"), "nothing was asked, nothing is answered");
    host.close().await;
}

#[tokio::test]
async fn l31_a_modern_server_that_asks_for_what_was_not_offered_ends_its_call() {
    let requests = json!({"q": {"method": "sampling/createMessage", "params": {}}});
    for (requests, kind) in [(Some(requests), "cancelled"), (None, "protocol")] {
        let files = folder();
        let log = at(&files, "log");
        let question = Step::InputRequired { requests, state: None, forever: true };
        let host =
            asking(&Puppet::of(Era::Modern).on("tool:echo", [question]).log(&log), AcceptDefaults).await;
        let outcome = echo(&host).await;
        assert_eq!(error(&outcome).kind(), kind, "{outcome:?}");
        assert_eq!(count(&received(&log), "tools/call"), 1);
        assert!(host.tools().await.failed.is_empty(), "the connection is as good as before");
        host.close().await;
    }
}

#[tokio::test]
async fn l31_servers_are_told_what_is_offered_and_nothing_else() {
    for era in [Era::Legacy, Era::Modern] {
        for (offers, expected) in [
            (Offers::default(), json!({})),
            (Offers { forms: true, ..Offers::default() }, json!({"elicitation": {"form": {}}})),
            (
                Offers { forms: true, urls: true, sampling: true, roots: true },
                json!({"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {}}),
            ),
        ] {
            let files = folder();
            let log = at(&files, "log");
            let asker = Says { offers, ..says(Answer::Decline) };
            let host = asking(&Puppet::of(era).log(&log), asker).await;
            assert!(echo(&host).await.success);
            let messages = received(&log);
            let mut expected = expected;
            if era == Era::Legacy && offers.roots {
                expected["roots"] = json!({"listChanged": true});
            }
            let told = match era {
                Era::Legacy => {
                    let first = messages.iter().find(|m| m["method"] == "initialize").unwrap();
                    first["params"]["capabilities"].clone()
                }
                _ => {
                    let call = messages.iter().find(|m| m["method"] == "tools/call").unwrap();
                    call["params"]["_meta"]["io.modelcontextprotocol/clientCapabilities"].clone()
                }
            };
            assert_eq!(told, expected, "{era:?}");
            host.close().await;
        }
    }
}
