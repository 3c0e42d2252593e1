//! The program's own functions as tools: registered, listed, checked, run, failing, timed, and reaching the rest.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use wharf::ask::{Answer, Answered, Asker, Offers, Question};
use wharf::connect::Progress;
use wharf::host::{Context, NoArguments, Reply};
use wharf::mcp::Content;
use wharf::names::ServerName;
use wharf::policy::Permission;
use wharf::registry::Source;
use wharf::wire::Json;
use wharf::{CallOptions, Host, LocalTool};
use wharf_testkit::Puppet;

use crate::support::{builder, error, host, puppet, soon, within};

#[derive(Deserialize, JsonSchema)]
struct Add {
    /// The first number.
    a: i64,
    #[serde(default)]
    b: i64,
}

fn add() -> LocalTool {
    LocalTool::new("add", "Adds two numbers", async |add: Add, _| {
        Ok::<_, String>((add.a + add.b).to_string())
    })
}

/// A tool without arguments that does this.
fn doing<F, R>(name: &str, run: impl Fn(Context) -> F + Send + Sync + 'static) -> LocalTool
where
    F: Future<Output = Result<R, String>> + Send + 'static,
    R: Into<Reply> + 'static,
{
    LocalTool::new(name, "Does something", move |_: NoArguments, context| run(context))
}

async fn alone(tools: impl IntoIterator<Item = LocalTool>) -> Host {
    let host = host([]).await;
    for tool in tools {
        host.register(tool).unwrap();
    }
    host
}

#[tokio::test]
async fn l50_an_async_and_a_plain_function_are_listed_and_called_like_a_servers_tools() {
    let host = host([puppet("pup", &Puppet::new())]).await;
    assert_eq!(&*host.register(add()).unwrap(), "add");
    let shout = LocalTool::blocking("shout", "Says it loudly", |said: HashMap<String, String>, _| {
        said.get("word").map(|word| word.to_uppercase()).ok_or("there is no word")
    });
    assert_eq!(&*host.register(shout.in_set("voice")).unwrap(), "voice_shout");
    let listing = host.tools().await;
    let names: Vec<&str> = listing.snapshot.tools().iter().map(|route| &*route.public).collect();
    assert_eq!(names, ["pup_echo", "add", "voice_shout"]);
    let route = listing.snapshot.route("add").unwrap();
    assert_eq!((route.source, route.server.as_str()), (Source::Local, "local"));
    assert_eq!(route.tool.description.as_ref().unwrap().raw(), "Adds two numbers");
    let schema: Value = route.tool.input_schema.to().unwrap();
    assert_eq!(schema["required"], json!(["a"]));
    assert_eq!(schema["properties"]["a"]["description"], "The first number.");

    assert_eq!(host.call("add", json!({"a": 20, "b": 22})).await.to_text(), "42");
    assert_eq!(host.call("voice_shout", json!({"word": "ahoy"})).await.to_text(), "AHOY");
    assert!(host.call("pup_echo", json!({"message": "ahoy"})).await.to_text().contains("ahoy"));
    let by_identity = host.call_tool("voice", "shout", json!({"word": "hi"}), CallOptions::default()).await;
    assert_eq!(by_identity.to_text(), "HI");
    let callable = host.callable("local", "add").await.unwrap();
    assert_eq!(callable.call(json!({"a": 1})).await.to_text(), "1");
    host.close().await;
}

#[tokio::test]
async fn l50_arguments_that_do_not_fit_run_nothing() {
    let ran = Arc::new(AtomicUsize::new(0));
    let counting = Arc::clone(&ran);
    let tool = LocalTool::new("add", "Adds", move |add: Add, _| {
        counting.fetch_add(1, Ordering::SeqCst);
        async move { Ok::<_, String>((add.a + add.b).to_string()) }
    });
    let host = alone([tool]).await;
    for (arguments, words) in [
        (json!({}), "missing required field `a`"),
        (json!({"a": "one"}), "field `a`: expected a whole number"),
        (json!([1]), "object"),
    ] {
        let outcome = host.call("add", arguments.clone()).await;
        assert_eq!(error(&outcome).kind(), "arguments", "{arguments}");
        assert!(error(&outcome).to_string().contains(words), "{}", error(&outcome));
    }
    let twice = Json::parse(r#"{"a": 1, "a": 2}"#, 10).unwrap();
    assert_eq!(error(&host.call("add", twice).await).kind(), "arguments", "what was checked is what is run");
    // It fits the schema and not the type: an `i64` ends somewhere, a JSON number does not.
    let outcome = host.call("add", Json::parse(r#"{"a": 99999999999999999999}"#, 10).unwrap()).await;
    assert_eq!(error(&outcome).kind(), "arguments", "{outcome:?}");
    assert_eq!(ran.load(Ordering::SeqCst), 0);
    assert!(host.call("add", json!({"a": 1})).await.success);
    assert_eq!(ran.load(Ordering::SeqCst), 1);
}

#[derive(Serialize, JsonSchema)]
struct Berth {
    number: u32,
    free: bool,
}

#[derive(Serialize, JsonSchema)]
enum Ship {
    Tug { power: u32 },
    Barge,
}

#[tokio::test]
async fn l50_results_are_text_pictures_and_structure_and_say_what_they_look_like() {
    let berth =
        doing("berth", async |_| Ok(Reply::structured(&Berth { number: 3, free: true }))).returns::<Berth>();
    let count = doing("count", async |_| Ok(Reply::structured(&[1, 2]))).returns::<Vec<u32>>();
    let ship = doing("ship", async |_| Ok(Reply::structured(&[Ship::Tug { power: 5 }, Ship::Barge][0])))
        .returns::<Ship>();
    let picture =
        doing("picture", async |_| Ok(Reply::text("a dot").and(Reply::image(&[1, 2, 3], "image/png"))));
    let nothing = doing("nothing", async |_| Ok(()));
    let wrong = doing("wrong", async |_| Ok(Reply::structured(&HashMap::from([((1, 2), 3)]))));
    let host = alone([berth, count, ship, picture, nothing, wrong]).await;

    let outcome = host.call("berth", json!({})).await;
    assert_eq!(outcome.structured().unwrap().to::<Value>().unwrap(), json!({"number": 3, "free": true}));
    assert_eq!(outcome.to_text(), r#"{"number":3,"free":true}"#);
    let outcome = host.call("count", json!({})).await;
    assert_eq!(outcome.structured().unwrap().to::<Value>().unwrap(), json!({"result": [1, 2]}));
    let outcome = host.call("picture", json!({})).await;
    let [Content::Text { .. }, Content::Image { .. }] = &outcome.content()[..] else {
        panic!("{:?}", outcome.content())
    };
    assert!(host.call("nothing", json!({})).await.success);
    let outcome = host.call("wrong", json!({})).await;
    assert!(outcome.is_error() && outcome.to_text().contains("cannot be written as JSON"), "{outcome:?}");

    // What a tool gives is what it says that it gives, also where an object is not always the same one.
    let listing = host.tools().await;
    for (tool, properties) in [("berth", "number"), ("count", "result"), ("ship", "result")] {
        let route = listing.snapshot.route(tool).unwrap();
        let schema: Value = route.tool.output_schema.as_ref().unwrap().to().unwrap();
        assert_eq!(schema["type"], "object");
        assert!(schema["properties"].get(properties).is_some(), "{schema}");
        let result = host.call(tool, json!({})).await.structured().unwrap();
        assert!(result.member(properties).is_some(), "{tool}: {}", result.as_str());
    }
    assert!(listing.snapshot.route("picture").unwrap().tool.output_schema.is_none());
}

#[tokio::test]
async fn l50_an_error_and_a_panic_are_failed_results_and_the_next_call_works() {
    let fails = doing("fails", async |_| Err::<(), _>("the tide is out".to_owned()));
    let panics = doing("panics", async |context: Context| {
        let _ = context.caller();
        assert!(context.extensions().get::<u8>().is_some(), "an async panic");
        Ok("fine")
    });
    let blocking = LocalTool::blocking("blocking", "Panics", |_: NoArguments, context: Context| {
        let missing = context.extensions().get::<u16>();
        let number = missing.expect("a blocking panic");
        Ok::<_, String>(number.to_string())
    });
    let at_once = LocalTool::new("at_once", "Panics before its future", |_: NoArguments, context| {
        assert!(context.extensions().get::<u32>().is_some(), "a plain panic");
        std::future::ready(Ok::<_, String>("fine"))
    });
    let host = alone([fails, panics, blocking, at_once, add()]).await;
    for (tool, words) in [
        ("fails", "the tide is out"),
        ("panics", "panicked: an async panic"),
        ("blocking", "panicked: a blocking panic"),
        ("at_once", "panicked: a plain panic"),
    ] {
        let outcome = host.call(tool, json!({})).await;
        assert!(outcome.is_error() && outcome.reason.as_ref().unwrap().contains(words), "{outcome:?}");
        assert_eq!(outcome.into_result().unwrap_err().kind(), "tool_failed");
        assert!(host.call("add", json!({"a": 1})).await.success);
    }
}

#[tokio::test]
async fn l50_a_name_that_is_taken_is_refused_and_the_same_tool_can_be_updated() {
    let host = alone([add()]).await;
    let refused = host.register(add()).unwrap_err();
    assert_eq!(refused.kind(), "config");
    assert!(refused.to_string().contains("`add`"), "{refused}");
    assert!(refused.hint().unwrap().contains("register_or_update"));
    host.register(doing("ADD", async |_| Ok(""))).unwrap_err();
    host.register(doing("b_c", async |_| Ok("first")).in_set("a")).unwrap();
    let other = doing("c", async |_| Ok("second")).in_set("a_b");
    host.register(other.clone()).unwrap_err();
    host.register_or_update(other).unwrap_err();
    assert_eq!(host.call("a_b_c", json!({})).await.to_text(), "first");

    let better = doing("add", async |_| Ok("better"));
    assert_eq!(&*host.register_or_update(better).unwrap(), "add");
    assert_eq!(host.call("add", json!({})).await.to_text(), "better");
    for name in ["", "two words", "naïve", "wharf_own", "a\nb", &"x".repeat(65)] {
        assert_eq!(host.register(doing(name, async |_| Ok(""))).unwrap_err().kind(), "config", "{name}");
    }
    let list = LocalTool::new("list", "Takes no object", async |_: Vec<u8>, _| Ok::<_, String>(""));
    assert_eq!(host.register(list).unwrap_err().kind(), "config");
}

#[tokio::test]
async fn l50_a_servers_tool_cannot_take_a_local_tools_name() {
    let mut config = puppet("pup", &Puppet::new().plain_tool("add").plain_tool("Sub"));
    config.tool_prefix = Some(String::new());
    let host = host([config]).await;
    assert!(host.tools().await.snapshot.route("add").is_some(), "it had the name while it was free");
    host.register(add()).unwrap();
    host.register(doing("sub", async |_| Ok("local"))).unwrap();
    let listing = host.tools().await;
    assert_eq!(listing.snapshot.route("add").unwrap().source, Source::Local);
    assert_eq!(host.call("add", json!({"a": 2, "b": 3})).await.to_text(), "5");
    let theirs = listing.snapshot.find("pup", "add").unwrap();
    assert!(theirs.public.starts_with("add_"), "it is still there under another name: {}", theirs.public);
    assert!(host.call(&theirs.public, json!({"x": 1})).await.to_text().contains('x'));
    assert!(listing.snapshot.route("Sub").is_none(), "names that differ in case only are alike");

    assert!(host.unregister("add"));
    assert!(!host.unregister("add") && !host.unregister_from("voice", "add"));
    assert_eq!(host.tools().await.snapshot.route("add").unwrap().source, Source::Mcp);
    let unknown = host.call_tool("local", "add", json!({}), CallOptions::default()).await;
    assert_eq!(error(&unknown).kind(), "unknown_tool");
    assert!(error(&unknown).hint().unwrap().contains("`sub`"), "{:?}", error(&unknown).hint());
    host.close().await;
}

#[tokio::test(start_paused = true)]
async fn l37_a_local_tool_has_its_time_and_progress_gives_it_more() {
    let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
    let sleeps = doing("sleeps", move |_| async move {
        tokio::time::sleep(minute).await;
        Ok("awake")
    });
    let reports = doing("reports", move |context| async move {
        for step in 1..=60 {
            tokio::time::sleep(second).await;
            context.progress(f64::from(step), Some(60.0), Some("on the way"));
        }
        Ok("there")
    });
    let host = alone([sleeps.clone(), sleeps.in_set("short").timeout(2 * second), reports]).await;
    let outcome = host.call("sleeps", json!({})).await;
    assert_eq!((outcome.to_text().as_str(), outcome.took), ("awake", minute), "there is no limit by itself");
    let options = || within(2 * second, None);
    let outcome = host.call("short_sleeps", json!({})).await;
    assert_eq!((error(&outcome).kind(), outcome.took), ("timeout", 2 * second));
    let outcome = host.call_with("sleeps", Json::empty_object(), options()).await;
    assert_eq!((error(&outcome).kind(), outcome.took), ("timeout", 2 * second));
    let longer = within(2 * minute, None);
    assert!(
        host.call_with("short_sleeps", Json::empty_object(), longer).await.success,
        "the caller's counts"
    );

    let heard = Arc::new(Mutex::new(Vec::new()));
    let listened = Arc::clone(&heard);
    let mut listen = move |step: Progress| listened.lock().unwrap().push(step.progress);
    let options = CallOptions { on_progress: Some(&mut listen), ..within(10 * second, None) };
    assert!(host.call_with("reports", Json::empty_object(), options).await.success);
    assert_eq!(*heard.lock().unwrap(), (1..=60).map(f64::from).collect::<Vec<_>>());
    for (hard, after) in [(Some(30 * second), 30 * second), (None, 40 * second)] {
        let outcome = host.call_with("reports", Json::empty_object(), within(2 * second, hard)).await;
        assert_eq!((error(&outcome).kind(), outcome.took), ("timeout", after), "whatever the signs");
    }
}

#[tokio::test]
async fn l37_a_flood_of_reports_keeps_no_end_from_being_seen() {
    let done = Arc::new(AtomicUsize::new(0));
    let stop = Arc::clone(&done);
    let floods =
        LocalTool::blocking("floods", "Reports for ever", move |_: NoArguments, context: Context| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                while stop.load(Ordering::Relaxed) == 0 {
                    context.progress(1.0, None, None);
                }
            });
            Ok::<_, String>("over")
        });
    let host = alone([floods]).await;
    let mut heard = 0;
    let mut listen = |_: Progress| heard += 1;
    let options = CallOptions { on_progress: Some(&mut listen), ..CallOptions::default() };
    let call = host.call_with("floods", Json::empty_object(), options);
    let outcome = soon("a call whose reports never end", call).await;
    done.store(1, Ordering::Relaxed);
    assert_eq!(outcome.to_text(), "over");
}

#[tokio::test]
async fn l37_dropping_the_call_ends_the_function() {
    struct Gone(Arc<AtomicUsize>);
    impl Drop for Gone {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let (gone, entered) = (Arc::new(AtomicUsize::new(0)), Arc::new(tokio::sync::Notify::new()));
    let (watched, enters) = (Arc::clone(&gone), Arc::clone(&entered));
    let waits = doing("waits", move |_| {
        let (held, enters) = (Gone(Arc::clone(&watched)), Arc::clone(&enters));
        async move {
            enters.notify_one();
            std::future::pending::<()>().await;
            drop(held);
            Ok("never")
        }
    });
    let host = alone([waits]).await;
    tokio::select! {
        outcome = host.call("waits", json!({})) => panic!("{outcome:?}"),
        () = entered.notified() => {}
    }
    assert_eq!(gone.load(Ordering::SeqCst), 1);
}

/// Allows and accepts, after a while.
struct Slowly(Duration);

impl Asker for Slowly {
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        assert_eq!(server.as_str(), "local", "the set is named, as a server is");
        let time = self.0;
        Box::pin(async move {
            tokio::time::sleep(time).await;
            match question {
                Question::Url { url, .. } => Answer::Accept(Json::of(&json!({"seen": url.raw()}))),
                _ => Answer::Decline,
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn l62_a_handler_asks_and_the_time_of_the_answer_is_not_its_own() {
    let second = Duration::from_secs(1);
    let asks = doing("asks", async |context: Context| {
        let question = Question::Url { message: "look".into(), url: "https://example.org".into(), id: None };
        let Answer::Accept(content) = context.ask(question).await else { return Err("no".into()) };
        tokio::time::sleep(Duration::from_millis(1900)).await;
        Ok(content.as_str().to_owned())
    });
    let host = builder().asker(Slowly(30 * second)).start().await.unwrap();
    host.register(asks.timeout(2 * second)).unwrap();
    let outcome = host.call("asks", json!({})).await;
    assert_eq!(outcome.to_text(), r#"{"seen":"https://example.org"}"#, "{outcome:?}");
    let hard = within(2 * second, Some(20 * second));
    let outcome = host.call_with("asks", Json::empty_object(), hard).await;
    assert_eq!((error(&outcome).kind(), outcome.took), ("timeout", 20 * second), "but not for ever");
}

#[tokio::test]
async fn l62_a_handler_reaches_the_host_its_resources_and_its_caller() {
    let script = Puppet::new();
    let host = host([puppet("pup", &script)]).await;
    host.extensions().insert(String::from("a lamp"));
    let through = doing("through", async |context: Context| {
        let said = context.host().call("pup_echo", json!({"message": "hello"})).await;
        let lamp = context.extensions().get::<String>().ok_or("it is dark")?;
        let connected = context.host().berth("pup").is_ok_and(|berth| berth.connected());
        Ok(format!("{} {} {lamp} {connected}", context.caller(), said.to_text()))
    });
    let twice = doing("twice", async |context: Context| {
        let once = context.host().call("through", json!({})).await;
        Ok(format!("twice {}", once.to_text()))
    });
    host.register(through).unwrap();
    host.register(twice).unwrap();
    let outcome = host.call("twice", json!({})).await;
    assert_eq!(outcome.to_text(), r#"twice local {"message":"hello"} a lamp true"#);

    let session = host.session("cook").permission(Permission::Yolo).start().unwrap();
    session.extensions().insert(String::from("a stove"));
    let outcome = session.call("through", json!({})).await;
    assert_eq!(outcome.to_text(), r#"cook {"message":"hello"} a stove true"#);
    let sandboxed = host.session("guest").permission(Permission::Sandboxed).start().unwrap();
    let outcome = sandboxed.call("through", json!({})).await;
    assert!(outcome.to_text().contains("denied"), "a handler can do no more than its caller: {outcome:?}");
    host.close().await;
}
