//! What an agent may do, and who is asked: permission, consent, how far a yes reaches.

use std::sync::{Arc, Mutex};

use serde_json::json;
use wharf::ask::{Answer, Answered, Asker, Consent, Offers, Question};
use wharf::host::{Docking, Load, NoArguments, SessionBuilder};
use wharf::names::ServerName;
use wharf::policy::{Permission, Reach};
use wharf::{CallOptions, Error, Host, LocalTool, Session};
use wharf_testkit::Puppet;

use crate::support::{at, count, error, folder, host, puppet, received};

/// Answers in turn, the last answer again and again, and keeps what it was asked.
#[derive(Clone)]
pub(crate) struct Person {
    answers: Arc<Mutex<Vec<Answer>>>,
    asked: Arc<Mutex<Vec<(ServerName, Consent)>>>,
}

impl Asker for Person {
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        let Question::Consent(consent) = question else { panic!("{question:?}") };
        self.asked.lock().unwrap().push((server.clone(), consent));
        let mut answers = self.answers.lock().unwrap();
        let answer = if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() };
        Box::pin(async move {
            // Whoever else wants to ask has the time to do so.
            tokio::task::yield_now().await;
            answer
        })
    }
}

impl Person {
    pub(crate) fn who_says(answers: impl IntoIterator<Item = Answer>) -> Self {
        Self { answers: Arc::new(Mutex::new(answers.into_iter().collect())), asked: Arc::default() }
    }

    pub(crate) fn asked(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

/// Two servers, each with two tools.
async fn two() -> Host {
    let script = || Puppet::new().plain_tool("echo").plain_tool("other");
    host([puppet("pup", &script()), puppet("dog", &script())]).await
}

fn local() -> LocalTool {
    LocalTool::new("local", "A function", async |_: NoArguments, _| Ok::<_, String>("here"))
}

async fn may(session: &Session, tool: &str) -> bool {
    let outcome = session.call(tool, json!({})).await;
    if !outcome.success {
        assert_eq!(error(&outcome).kind(), "denied", "{outcome:?}");
    }
    outcome.success
}

fn names(listing: &wharf::host::Listing) -> Vec<String> {
    listing.snapshot.tools().iter().map(|route| route.public.to_string()).collect()
}

fn trusted(host: &Host, person: &Person) -> Session {
    let builder: SessionBuilder = host.session("main").permission(Permission::Trusted);
    builder.asker(person.clone()).start().unwrap()
}

#[tokio::test]
async fn l21_permission_decides_what_is_listed_found_and_called() {
    let files = folder();
    let (pid, log) = (at(&files, "pid"), at(&files, "log"));
    let host = host([puppet("pup", &Puppet::new().pid(&pid).log(&log))]).await;
    host.register(local()).unwrap();
    let no_permission = host.session("nobody").start().unwrap();
    let sandboxed = host.session("guest").permission(Permission::Sandboxed).start().unwrap();
    for session in [&no_permission, &sandboxed] {
        assert!(session.servers().is_empty() && session.connections().is_empty());
        assert!(session.tools().await.failed.is_empty());
        session.call("pup_echo", json!({})).await.into_result().unwrap_err();
        let denied = session.call_tool("pup", "echo", json!({}), CallOptions::default()).await;
        assert_eq!(error(&denied).kind(), "denied");
        let kinds = [
            session.tools_of("pup").await.unwrap_err(),
            session.find("pup", "echo").await.unwrap_err(),
            session.callable("pup", "echo").await.unwrap_err(),
            session.ensemble("pup").await.unwrap_err(),
            session.berth("pup").unwrap_err(),
            session.berth(puppet("own", &Puppet::new().pid(&pid))).unwrap_err(),
            session.load(Load::new("pup")).await.unwrap_err(),
            session.load(Load::new(puppet("own", &Puppet::new().pid(&pid)))).await.unwrap_err(),
            session.connect(Docking::new(puppet("own", &Puppet::new().pid(&pid)))).await.unwrap_err(),
        ];
        assert!(kinds.iter().all(|error| error.kind() == "denied"), "{kinds:?}");
        session.add_server(puppet("own", &Puppet::new().pid(&pid)));
        session.tools().await;
        assert!(!session.call("own_echo", json!({})).await.success);
    }
    assert!(!pid.exists(), "no server was started for them");

    assert!(names(&no_permission.tools().await).is_empty());
    let denied = no_permission.call("local", json!({})).await;
    assert!(error(&denied).to_string().contains("`nobody`"), "{denied:?}");
    assert!(
        error(&denied).hint().unwrap().contains("SessionBuilder::permission"),
        "it names the call that gives it"
    );
    assert_eq!(names(&sandboxed.tools().await), ["local"]);
    assert_eq!(sandboxed.call("local", json!({})).await.to_text(), "here");

    // A server that others started changes nothing for them, and they are told why.
    let yolo = host.session("wild").permission(Permission::Yolo).start().unwrap();
    assert_eq!(names(&yolo.tools().await), ["pup_echo", "local"]);
    assert!(yolo.call("pup_echo", json!({})).await.success && yolo.call("local", json!({})).await.success);
    let denied = sandboxed.call("pup_echo", json!({})).await;
    assert!(error(&denied).to_string().contains("sandboxed"), "{denied:?}");
    assert_eq!(names(&sandboxed.tools().await), ["local"]);
    assert!(
        error(&no_permission.call("pup_echo", json!({})).await).to_string().contains("it was given none")
    );
    assert_eq!(count(&received(&log), "tools/call"), 1);
    host.close().await;
}

#[tokio::test]
async fn l22_a_yes_reaches_as_far_as_was_said() {
    let calls = ["pup_echo", "pup_echo", "pup_other", "dog_echo", "dog_other", "dog_other"];
    for (reach, asked) in [(Reach::Once, 6), (Reach::Tool, 4), (Reach::Server, 2), (Reach::Session, 1)] {
        let host = two().await;
        let person = Person::who_says([Answer::Allow(reach)]);
        let session = trusted(&host, &person);
        session.tools().await;
        assert_eq!(person.asked(), 0, "looking at a list is not calling");
        for call in calls {
            assert!(may(&session, call).await);
        }
        assert_eq!(person.asked(), asked, "{reach:?}");
        let other = trusted(&host, &person);
        assert!(may(&other, "pup_echo").await);
        assert_eq!(person.asked(), asked + 1, "a yes to one session is none to another");
        host.close().await;
    }
}

#[tokio::test]
async fn l22_whoever_is_asked_sees_who_wants_what_with_which_arguments() {
    let host = two().await;
    let person = Person::who_says([Answer::Allow(Reach::Once)]);
    let session = trusted(&host, &person);
    let arguments = json!({"path": "/quay", "api_key": "not-for-show"});
    assert!(session.call("pup_echo", arguments).await.success);
    let (server, consent) = person.asked.lock().unwrap().pop().unwrap();
    assert_eq!((server.as_str(), consent.caller.as_str(), consent.tool.as_str()), ("pup", "main", "echo"));
    assert_eq!(consent.reaches, [Reach::Once, Reach::Tool, Reach::Server, Reach::Session]);
    assert_eq!(consent.arguments.to_value(), json!({"path": "/quay", "api_key": "***"}));
    host.close().await;
}

#[tokio::test]
async fn l22_everything_but_a_plain_yes_is_a_no_and_nothing_is_sent() {
    let files = folder();
    let log = at(&files, "log");
    let host = host([puppet("pup", &Puppet::new().log(&log))]).await;
    for no in
        [Answer::Decline, Answer::Cancel, Answer::Accept(json!({}).into()), Answer::Result(json!({}).into())]
    {
        let person = Person::who_says([no]);
        let session = trusted(&host, &person);
        let outcome = session.call("pup_echo", json!({})).await;
        assert_eq!(error(&outcome).kind(), "denied");
        assert!(error(&outcome).to_string().contains("consent"), "{outcome:?}");
        assert!(!may(&session, "pup_echo").await);
        assert_eq!(person.asked(), 2, "a no is not for ever");
    }
    let nobody = host.session("main").permission(Permission::Trusted).start().unwrap();
    assert!(!may(&nobody, "pup_echo").await, "with nobody to ask it is a no");
    assert_eq!(count(&received(&log), "tools/call"), 0);
    assert_eq!(
        error(&nobody.call("pup_echo", json!([])).await).kind(),
        "arguments",
        "nobody is asked for nonsense"
    );
    host.close().await;
}

#[tokio::test]
async fn l22_tool_by_tool_only_once_or_the_tool_is_on_offer() {
    let host = two().await;
    let wide = [Answer::Allow(Reach::Server), Answer::Allow(Reach::Session), Answer::Allow(Reach::Tool)];
    let person = Person::who_says(wide);
    let session = trusted(&host, &person);
    let script = || puppet("own", &Puppet::new().plain_tool("a").plain_tool("b"));
    let names = session.connect(Docking::new(script()).per_tool()).await.unwrap();
    assert_eq!(names.iter().map(|n| &**n).collect::<Vec<_>>(), ["own_a", "own_b"]);
    assert!(!may(&session, "own_a").await, "a reach that was not offered is a no");
    assert!(!may(&session, "own_a").await);
    assert_eq!(person.asked.lock().unwrap()[0].1.reaches, [Reach::Once, Reach::Tool]);
    assert!(may(&session, "own_a").await && may(&session, "own_a").await);
    assert_eq!(person.asked(), 3);
    assert!(may(&session, "own_b").await, "the other tool is asked for by itself");
    assert_eq!(person.asked(), 4);

    // A yes to everything does not reach a server that is asked for tool by tool.
    *person.answers.lock().unwrap() = vec![Answer::Allow(Reach::Session), Answer::Decline];
    assert!(may(&session, "pup_echo").await && may(&session, "dog_echo").await);
    session.revoke("own").unwrap();
    assert!(!may(&session, "own_a").await);
    assert_eq!(person.asked.lock().unwrap().last().unwrap().1.reaches, [Reach::Once, Reach::Tool]);
    host.close().await;
}

#[tokio::test]
async fn l22_what_was_allowed_beforehand_is_not_asked_and_can_be_taken_back() {
    let host = two().await;
    let person = Person::who_says([Answer::Decline]);
    let session = trusted(&host, &person);
    session.connect(Docking::new(puppet("own", &Puppet::new())).allow_all()).await.unwrap();
    assert!(may(&session, "own_echo").await);
    session.allow("pup", Some("echo")).unwrap();
    assert!(may(&session, "pup_echo").await && !may(&session, "pup_other").await);
    session.allow("dog", None).unwrap();
    assert!(may(&session, "dog_echo").await && may(&session, "dog_other").await);
    session.allow("cat", None).unwrap_err();
    assert_eq!(person.asked(), 1);
    for (server, tool) in [("own", "own_echo"), ("pup", "pup_echo"), ("dog", "dog_other")] {
        session.revoke(server).unwrap();
        assert!(!may(&session, tool).await, "{server}");
    }
    // Also where it was allowed with everything else.
    *person.answers.lock().unwrap() = vec![Answer::Allow(Reach::Session), Answer::Decline];
    assert!(may(&session, "pup_other").await && may(&session, "dog_other").await);
    session.revoke("dog").unwrap();
    assert!(!may(&session, "dog_other").await && may(&session, "pup_echo").await);
    host.close().await;
}

#[tokio::test]
async fn l22_local_tools_are_asked_for_only_if_they_say_so() {
    let host = two().await;
    host.register(local()).unwrap();
    let careful = LocalTool::new("careful", "Deletes", async |_: NoArguments, _| Ok::<_, String>("gone"));
    host.register(careful.ask_first()).unwrap();
    let person = Person::who_says([Answer::Allow(Reach::Server), Answer::Allow(Reach::Tool)]);
    let session = trusted(&host, &person);
    assert!(may(&session, "local").await);
    assert_eq!(person.asked(), 0);
    assert!(!may(&session, "careful").await, "there is no server to say yes to");
    assert!(may(&session, "careful").await && may(&session, "careful").await);
    assert_eq!(person.asked(), 2);
    let yolo = host.session("wild").permission(Permission::Yolo).asker(person.clone()).start().unwrap();
    assert!(may(&yolo, "careful").await && host.call("careful", json!({})).await.success);
    assert_eq!(person.asked(), 2);
    let guest = host.session("guest").permission(Permission::Sandboxed).start().unwrap();
    assert!(!may(&guest, "careful").await);
    host.close().await;
}

#[tokio::test]
async fn l22_calls_side_by_side_ask_once() {
    let host = two().await;
    let person = Person::who_says([Answer::Allow(Reach::Server)]);
    let session = trusted(&host, &person);
    let calls = (0..20).map(|_| session.call("pup_echo", json!({})));
    let outcomes = futures_util::future::join_all(calls).await;
    assert!(outcomes.iter().all(|outcome| outcome.success));
    assert_eq!(person.asked(), 1);
    host.close().await;
}

#[tokio::test]
async fn l22_a_yes_to_one_server_is_none_to_another_of_its_name() {
    for reach in [Reach::Tool, Reach::Server] {
        let host = two().await;
        let person = Person::who_says([Answer::Allow(reach)]);
        let session = trusted(&host, &person);
        assert!(may(&session, "pup_echo").await && may(&session, "pup_echo").await);
        assert_eq!(person.asked(), 1);
        let same = host.servers().into_iter().find(|config| config.name.as_str() == "pup").unwrap();
        host.add_server(wharf::config::ServerConfig::clone(&same));
        assert!(may(&session, "pup_echo").await);
        assert_eq!(person.asked(), 1, "it is the very same server");
        host.add_server(puppet("pup", &Puppet::new().with(|s| s.instructions = Some("new".into()))));
        assert!(may(&session, "pup_echo").await);
        assert_eq!(person.asked(), 2);
        host.close().await;
    }
}

#[tokio::test]
async fn l21_a_session_of_a_session_is_trusted_no_further() {
    let host = two().await;
    let levels = [None, Some(Permission::Sandboxed), Some(Permission::Trusted), Some(Permission::Yolo)];
    for (maker, wide) in levels.iter().enumerate() {
        for (made, narrow) in levels.iter().enumerate() {
            let start = |host: &Host, name: &str, permission: &Option<Permission>| {
                let session = host.session(name);
                permission.map_or(host.session(name), |p| session.permission(p)).start()
            };
            let maker_session = start(&host, "maker", wide).unwrap();
            let made_session = start(&maker_session, "made", narrow);
            assert_eq!(made_session.is_ok(), made <= maker, "{wide:?} {narrow:?}");
            if let Err(error) = made_session {
                assert!(matches!(error, Error::Denied { .. }), "{error:?}");
            }
        }
    }
    // It has its maker's asker, and none of what its maker was allowed or connected.
    let person = Person::who_says([Answer::Allow(Reach::Session), Answer::Decline]);
    let maker = trusted(&host, &person);
    maker.connect(Docking::new(puppet("own", &Puppet::new()))).await.unwrap();
    assert!(may(&maker, "pup_echo").await && may(&maker, "own_echo").await);
    let made = maker.session("made").permission(Permission::Trusted).start().unwrap();
    assert!(!may(&made, "pup_echo").await);
    assert_eq!(person.asked(), 2);
    assert_eq!(error(&made.call("own_echo", json!({})).await).kind(), "unknown_tool");
    maker.close().await;
    assert_eq!(maker.session("late").start().unwrap_err().kind(), "cancelled");
    host.close().await;
}
