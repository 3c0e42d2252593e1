//! A server that is in two places, one of which fails: what a gateway says of it, in words, as JSON and in its status.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::runtime::Runtime;
use wharf_testkit::http::honest_modern;
use wharf_testkit::{HttpPuppet, Recorded, Reply};

use crate::desk::Desk;
use crate::logs::Logging;
use crate::reload::Pipe;
use crate::serve::Serving;

/// Two places of one server, and a desk where it is `web`.
struct Twins {
    desk: Desk,
    places: [(HttpPuppet, Arc<AtomicBool>); 2],
    _runtime: Runtime,
}

impl Twins {
    fn new(more: &str) -> Self {
        let runtime = Runtime::new().unwrap();
        let inside = runtime.enter();
        let places = [place(), place()];
        drop(inside);
        let desk = Desk::new();
        let [first, second] = places.each_ref().map(|(puppet, _)| puppet.url());
        desk.user(&format!(
            "[mcp.web]\nurl = {first:?}\nreplicas = [{second:?}]\nidempotent = [\"*\"]\n{more}"
        ));
        Self { desk, places, _runtime: runtime }
    }

    /// Whether one of them, counted from 1, fails from now on.
    fn fails(&self, number: usize, fails: bool) {
        self.places[number - 1].1.store(fails, Ordering::SeqCst);
    }
}

fn place() -> (HttpPuppet, Arc<AtomicBool>) {
    let fails = Arc::new(AtomicBool::new(false));
    let is_failing = Arc::clone(&fails);
    let honest = honest_modern(vec![json!({"name": "echo", "inputSchema": {"type": "object"}})]);
    let play = move |request: Recorded| {
        let (honest, fails) = (honest.clone(), is_failing.load(Ordering::SeqCst));
        async move { if fails { Reply::status(503) } else { honest(request).await } }
    };
    (HttpPuppet::start(play), fails)
}

/// Calls until it says this line. Gives everything that it said.
fn call_until(pipe: &mut Pipe, beginning: &str) -> String {
    for _ in 0..2000 {
        pipe.echo("web");
        let said = pipe.said();
        if said.lines().any(|line| line.starts_with(beginning)) {
            return said;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("it never says `{beginning}`: {}", pipe.said());
}

#[test]
fn l39_a_server_is_left_alone_only_when_all_its_instances_are() {
    let twins = Twins::new("breaker = { failures = 1, cool_down = \"100ms\" }\n");
    let mut pipe = Pipe::open(&twins.desk);
    assert!(pipe.echo("web")["result"].is_object());
    twins.fails(2, true);
    let said =
        call_until(&mut pipe, "warning: instance 2 of web is left alone for a while: it failed 1 times");
    assert!(!said.contains("warning: web is left alone"), "the other goes on: {said}");
    assert!(pipe.echo("web")["result"].is_object());
    twins.fails(1, true);
    let said = call_until(&mut pipe, "warning: web is left alone for a while");
    assert!(said.contains("warning: instance 1 of web is left alone"), "{said}");
    assert!(!said.contains("asked again"), "{said}");
    twins.fails(1, false);
    let said = call_until(&mut pipe, "web is asked again");
    assert!(said.lines().any(|line| line == "instance 1 of web is asked again"), "{said}");
    assert!(!said.contains("instance 2 of web is asked again"), "{said}");
    twins.fails(2, false);
    let said = call_until(&mut pipe, "instance 2 of web is asked again");
    let told = |line: &str| said.lines().filter(|said| *said == line).count();
    assert_eq!((told("web is asked again"), told("instance 1 of web is asked again")), (1, 1), "{said}");
    pipe.close();
}

#[test]
fn l39_a_replica_that_policy_refuses_is_told_of_as_the_instance_that_it_is() {
    let twins = Twins::new("");
    let url = twins.places[0].0.url();
    twins.desk.user(&format!("[mcp.web]\nurl = {url:?}\nreplicas = [\"http://169.254.169.254/mcp\"]\n"));
    let mut pipe = Pipe::open(&twins.desk);
    let said = call_until(&mut pipe, "warning: instance 2 of web cannot be had: ");
    assert!(!said.contains("warning: web cannot be had"), "{said}");
    assert!(pipe.echo("web")["result"].is_object());
    pipe.close();
}

#[test]
fn l96_the_log_says_which_instance_fails_is_silent_and_was_passed_over() {
    let more = "breaker = { failures = 1, cool_down = \"100ms\" }\nhealth_check = \"1s\"\n";
    let twins = Twins::new(more);
    let mut log = Logging::start(&twins.desk);
    let call = |log: &Logging| crate::logs::call(&twins.desk, &log.url, &["web_echo"]);
    while !twins.places[1].0.requests().iter().any(|request| request.rpc_method() == "tools/call") {
        assert_eq!(call(&log), 0);
    }
    twins.fails(2, true);
    // Found out by a call, or by the check, whichever comes first: each is told of.
    assert_eq!((call(&log), call(&log)), (0, 0), "the other instance takes them");
    let told = log.until_all(&["circuit", "retried", "health"]);
    let [circuit, retried, health]: &[Value; 3] = told.as_slice().try_into().unwrap();
    assert_eq!((&circuit["server"], &circuit["instance"]), (&json!("web"), &json!(2)), "{circuit}");
    assert_eq!((&circuit["circuit"], &circuit["level"]), (&json!("open"), &json!("warn")), "{circuit}");
    assert!(circuit["reason"].as_str().unwrap().contains("503"), "{circuit}");
    assert_eq!((&retried["server"], &retried["tool"]), (&json!("web"), &json!("echo")), "{retried}");
    assert!(retried["reason"].as_str().unwrap().contains("503"), "{retried}");
    assert_eq!((&health["server"], &health["instance"]), (&json!("web"), &json!(2)), "{health}");
    assert_eq!((&health["missed"], &health["level"]), (&json!(1), &json!("warn")), "{health}");
    twins.fails(2, false);
    let well = loop {
        let line = log.until("health");
        if line["missed"] == 0 {
            break line;
        }
    };
    assert_eq!((&well["instance"], &well["level"]), (&json!(2), &json!("info")), "{well}");
}

#[test]
fn l96_status_and_top_say_how_many_instances_take_calls_and_what_is_wrong_with_the_others() {
    let twins = Twins::new("breaker = { failures = 1, cool_down = \"600s\" }\n");
    let serving = Serving::start(&twins.desk);
    let call = || crate::logs::call(&twins.desk, &serving.url, &["web_echo"]);
    let told = |command: &[&str]| {
        let ran = twins.desk.run(&[command, &[&serving.url]].concat()).ok();
        let row = ran.out.lines().find(|line| line.starts_with("web\t")).unwrap();
        row.split('\t').map(str::to_owned).collect::<Vec<_>>()
    };
    for _ in 0..3 {
        assert_eq!(call(), 0);
    }
    let row = told(&["status"]);
    assert_eq!((row[1].as_str(), row.last().unwrap().as_str()), ("2 of 2", ""), "{row:?}");
    twins.fails(2, true);
    for _ in 0..3 {
        assert_eq!(call(), 0);
    }
    let row = told(&["status"]);
    let trouble = row.last().unwrap();
    assert_eq!(row[1], "1 of 2");
    assert!(
        trouble.starts_with("instance 2: it failed 1 times in a row") && trouble.contains("503"),
        "{trouble}"
    );
    assert_eq!(told(&["top", "--interval", "50ms"])[1], "1 of 2");
    let status = twins.desk.run(&["status", &serving.url, "--json"]).ok().json();
    let instances = &status["servers"][0]["instances"];
    assert_eq!((&instances[0]["trouble"], &instances[1]["circuit"]), (&Value::Null, &json!("open")));
    assert!(trouble.ends_with(instances[1]["trouble"].as_str().unwrap()), "{status}");
    twins.fails(1, true);
    assert_ne!(call(), 0);
    assert_eq!(told(&["status"])[1], "left alone");
    assert_eq!(serving.stop(), 0);
}
