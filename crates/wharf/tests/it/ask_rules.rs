//! The finer rules of questions: what fits, pages that come first, folders that change, and patience.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::Host;
use wharf::ask::{AcceptDefaults, Answer, Answered, Asker, Offers, Question};
use wharf::event::Event;
use wharf::names::ServerName;
use wharf::wire::Json;
use wharf_testkit::{Era, Puppet, Step};

use crate::support::{at, count, echo, error, folder, puppet, quick, received, soon, until, within};

/// Says one thing after another, the last for ever, and keeps what it was asked.
#[derive(Clone)]
struct Says {
    answers: Arc<Mutex<Vec<Answer>>>,
    asked: Arc<Mutex<Vec<Question>>>,
}

impl Asker for Says {
    fn offers(&self) -> Offers {
        Offers { forms: true, urls: true, sampling: true, roots: true }
    }

    fn ask(&self, _: &ServerName, question: Question) -> Answered {
        self.asked.lock().unwrap().push(question);
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(std::future::ready(answer))
    }
}

fn says(answers: impl Into<Vec<Answer>>) -> Says {
    Says { answers: Arc::new(Mutex::new(answers.into())), asked: Arc::default() }
}

fn yes() -> Answer {
    Answer::Accept(Json::empty_object())
}

async fn host(script: &Puppet, asker: impl Asker) -> Host {
    quick().asker(asker).server(puppet("pup", script)).start().await.unwrap()
}

/// A question to a server's client, in the server's era; the call then gives what was answered.
fn asks(era: Era, method: &str, params: Value) -> Puppet {
    let question = match era {
        Era::Legacy => Step::Ask { method: method.into(), params },
        _ => Step::InputRequired {
            requests: Some(json!({"q": {"method": method, "params": params}})),
            state: None,
            forever: false,
        },
    };
    Puppet::of(era).on("tool:echo", [question, Step::ReplyWithAnswer])
}

/// What the server got, or why the call ended without.
async fn got(era: Era, script: &Puppet, asker: impl Asker) -> Result<Value, String> {
    let host = host(script, asker).await;
    let outcome = echo(&host).await;
    host.close().await;
    if !outcome.success {
        return Err(error(&outcome).to_string());
    }
    let said: Value = serde_json::from_str(&outcome.to_text()).unwrap();
    let said = if era == Era::Legacy { said } else { said["q"].clone() };
    match said.get("code") {
        Some(_) => Err(said["message"].as_str().unwrap_or_default().to_owned()),
        None => Ok(said),
    }
}

#[tokio::test]
async fn l31_a_text_must_be_of_its_fields_format() {
    let fields = |format: &str| json!({"message": "m", "requestedSchema": {"type": "object", "properties": {"f": {"type": "string", "format": format}}}});
    let cases = [
        ("email", "ada@example.org", true),
        ("email", "ada", false),
        ("email", "@example.org", false),
        ("uri", "https://example.org/x", true),
        ("uri", "not an address", false),
        ("date", "2026-07-28", true),
        ("date", "28.7.2026", false),
        ("date", "2026-13-01", false),
        ("date-time", "2026-07-28T12:30:00Z", true),
        ("date-time", "2026-07-28T12:30:00.5+02:00", true),
        ("date-time", "2026-07-28", false),
        ("date-time", "2026-07-28T25:00:00Z", false),
        ("colour", "anything", true),
    ];
    for era in [Era::Legacy, Era::Modern] {
        for (format, text, fits) in cases {
            let asker = says([Answer::Accept(Json::from(json!({"f": text})))]);
            let said = got(era, &asks(era, "elicitation/create", fields(format)), asker).await;
            assert_eq!(said.is_ok(), fits, "{format} {text}: {said:?}");
        }
    }
}

#[tokio::test]
async fn l31_an_answer_that_does_not_fit_is_never_sent() {
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "required": ["n"], "properties": {"n": {"type": "integer", "maximum": 5}}}});
    let message = json!({"role": "assistant", "content": {"type": "text", "text": "4"}, "model": "m"});
    let cases = [
        ("elicitation/create", &form, Answer::Accept(Json::from(json!({"n": 5}))), true),
        ("elicitation/create", &form, Answer::Accept(Json::from(json!({"n": 6}))), false),
        ("elicitation/create", &form, Answer::Accept(Json::from(json!({}))), false),
        (
            "roots/list",
            &json!({}),
            Answer::Result(Json::from(json!({"roots": [{"uri": "file:///w"}]}))),
            true,
        ),
        ("roots/list", &json!({}), Answer::Result(Json::from(json!({"roots": [{"uri": "/w"}]}))), false),
        ("roots/list", &json!({}), Answer::Result(Json::from(json!([]))), false),
        (
            "sampling/createMessage",
            &json!({"messages": []}),
            Answer::Result(Json::from(message.clone())),
            true,
        ),
        (
            "sampling/createMessage",
            &json!({"messages": []}),
            Answer::Result(Json::from(json!({"role": "user"}))),
            false,
        ),
        (
            "sampling/createMessage",
            &json!({"messages": [], "tools": []}),
            Answer::Result(Json::from(message)),
            false,
        ),
    ];
    for era in [Era::Legacy, Era::Modern] {
        for (method, params, answer, fits) in &cases {
            let said = got(era, &asks(era, method, (*params).clone()), says([answer.clone()])).await;
            assert_eq!(said.is_ok(), *fits, "{method} {answer:?}: {said:?}");
        }
    }
}

#[tokio::test]
async fn l31_a_form_that_nobody_could_fill_in_is_refused() {
    let form = |fields: usize| {
        let properties: serde_json::Map<String, Value> =
            (0..fields).map(|n| (format!("f{n}"), json!({"type": "boolean", "default": true}))).collect();
        json!({"message": "m", "requestedSchema": {"type": "object", "properties": properties}})
    };
    for era in [Era::Legacy, Era::Modern] {
        for (fields, fine) in [(256, true), (257, false)] {
            let said = got(era, &asks(era, "elicitation/create", form(fields)), AcceptDefaults).await;
            assert_eq!(said.is_ok(), fine, "{said:?}");
        }
    }
}

#[tokio::test]
async fn l31_a_person_is_only_sent_to_pages_of_the_web() {
    for era in [Era::Legacy, Era::Modern] {
        for (url, fine) in [
            ("https://example.org/login?x=1", true),
            ("http://127.0.0.1:8080/", true),
            ("javascript:alert(1)", false),
            ("file:///etc/passwd", false),
            ("https://example.org/\u{202e}gnp", false),
            ("no address", false),
        ] {
            let asker = says([yes()]);
            let params = json!({"mode": "url", "message": "m", "url": url, "elicitationId": "e1"});
            let said = got(era, &asks(era, "elicitation/create", params), asker.clone()).await;
            assert_eq!(said.is_ok(), fine, "{url}: {said:?}");
            assert_eq!(asker.asked.lock().unwrap().len(), usize::from(fine), "{url}");
        }
    }
}

fn pages_first(elicitations: Value) -> Step {
    Step::ReplyError {
        code: -32042,
        message: "log in".into(),
        data: Some(json!({"elicitations": elicitations})),
    }
}

fn page(id: &str) -> Value {
    json!({"mode": "url", "elicitationId": id, "url": format!("https://example.org/{id}"), "message": "log in"})
}

#[tokio::test]
async fn l31_a_legacy_server_that_wants_pages_visited_first_is_called_again() {
    let files = folder();
    let log = at(&files, "log");
    let turns = vec![vec![pages_first(json!([page("a"), page("b")]))], vec![Step::Echo]];
    let script = Puppet::of(Era::Legacy).on("tool:echo", [Step::Turns(turns)]).log(&log);
    let asker = says([yes()]);
    let host = host(&script, asker.clone()).await;
    assert!(echo(&host).await.success);
    assert_eq!(count(&received(&log), "tools/call"), 2);
    let asked = asker.asked.lock().unwrap().clone();
    let ids: Vec<String> = asked
        .iter()
        .map(|question| match question {
            Question::Url { id: Some(id), .. } => id.raw().to_owned(),
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(ids, ["a", "b"]);
    host.close().await;
}

#[tokio::test]
async fn l31_pages_that_are_not_visited_or_never_enough_end_the_call() {
    let always = Puppet::of(Era::Legacy).on("tool:echo", [pages_first(json!([page("a")]))]);
    for (script, answers, kind, calls) in [
        (&always, vec![Answer::Decline], "cancelled", 1),
        (&always, vec![yes(), Answer::Decline], "cancelled", 2),
        (&always, vec![yes()], "protocol", 10),
        (&Puppet::of(Era::Legacy).on("tool:echo", [pages_first(json!([]))]), vec![yes()], "tool", 1),
        (&Puppet::of(Era::Legacy).on("tool:echo", [pages_first(json!("x"))]), vec![yes()], "tool", 1),
        // The modern era has another way, and a server of it must not use this one.
        (&Puppet::of(Era::Modern).on("tool:echo", [pages_first(json!([page("a")]))]), vec![yes()], "tool", 1),
    ] {
        let files = folder();
        let log = at(&files, "log");
        let script = Puppet::new().with(|s| *s = script.script.clone()).log(&log);
        let host = host(&script, says(answers)).await;
        let outcome = echo(&host).await;
        assert_eq!(error(&outcome).kind(), kind, "{outcome:?}");
        assert_eq!(count(&received(&log), "tools/call"), calls);
        host.close().await;
    }
    // Nobody who can visit a page: the error is the server's.
    let host = host(&always, AcceptDefaults).await;
    assert_eq!(error(&echo(&host).await).kind(), "tool");
    host.close().await;
}

#[tokio::test]
async fn l31_a_page_that_was_visited_is_told_as_an_event() {
    let told = Step::Notify {
        method: "notifications/elicitation/complete".into(),
        params: Some(json!({"elicitationId": "e\u{1b}1"})),
    };
    let host = host(&Puppet::of(Era::Legacy).on("tool:echo", [told, Step::Echo]), AcceptDefaults).await;
    let mut events = host.events().subscribe();
    assert!(echo(&host).await.success);
    let visited = async {
        loop {
            if let Event::PageVisited { server, id } = events.recv().await.unwrap() {
                return format!("{server} {id}");
            }
        }
    };
    assert_eq!(soon("the event", visited).await, "pup e\\u{1b}1");
    host.close().await;
}

#[tokio::test]
async fn l31_legacy_servers_hear_that_the_folders_changed_if_folders_were_offered() {
    for (era, offered, told) in [(Era::Legacy, true, 1), (Era::Modern, true, 0), (Era::Legacy, false, 0)] {
        let files = folder();
        let log = at(&files, "log");
        let script = Puppet::of(era).log(&log);
        let host = match offered {
            true => host(&script, says([Answer::Decline])).await,
            false => host(&script, AcceptDefaults).await,
        };
        host.roots_changed();
        assert!(echo(&host).await.success);
        host.roots_changed();
        assert!(echo(&host).await.success, "what is sent later comes later");
        until("both calls arrived", || count(&received(&log), "tools/call") == 2).await;
        assert_eq!(count(&received(&log), "notifications/roots/list_changed"), told, "{era:?} {offered}");
        host.close().await;
    }
}

/// Never answers.
struct Absent;

impl Asker for Absent {
    fn offers(&self) -> Offers {
        Offers { forms: true, urls: true, ..Offers::default() }
    }

    fn ask(&self, _: &ServerName, _: Question) -> Answered {
        Box::pin(std::future::pending())
    }
}

#[tokio::test]
async fn l37_a_question_that_nobody_answers_ends_with_the_calls_hard_limit() {
    let form = json!({"message": "m", "requestedSchema": {"type": "object", "properties": {}}});
    let pages = Puppet::of(Era::Legacy).on("tool:echo", [pages_first(json!([page("a")]))]);
    for script in [
        asks(Era::Legacy, "elicitation/create", form.clone()),
        asks(Era::Modern, "elicitation/create", form),
        pages,
    ] {
        let host = host(&script, Absent).await;
        host.tools().await;
        let (timeout, hard) = (Duration::from_millis(100), Duration::from_millis(400));
        let call = host.call_with("pup_echo", Json::from(json!({})), within(timeout, Some(hard)));
        let outcome = soon("the end of the call", call).await;
        assert_eq!(error(&outcome).kind(), "timeout", "{outcome:?}");
        assert!(outcome.took >= hard, "{:?}", outcome.took);
        host.close().await;
    }
}
