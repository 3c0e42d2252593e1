//! What is private does not reach the open world unless somebody allows it.

use std::sync::{Arc, Mutex};

use serde_json::json;
use wharf::ask::{Answer, Answered, Asker, Offers, Question};
use wharf::config::{self, Sources};
use wharf::error::Error;
use wharf::host::Host;
use wharf::names::{ServerName, ToolName};
use wharf::outcome::Outcome;
use wharf::policy::{FlowLabel, FlowReason, FlowSettings, Permission, Policy, Reach, Tainted};
use wharf_testkit::{Puppet, Step, puppet_path};

use crate::gateway::open;
use crate::support::{at, error, folder, puppet, quick};

fn labels(private: &[&str], open_world: &[&str]) -> FlowSettings {
    let all = |texts: &[&str]| texts.iter().map(|text| FlowLabel::parse(text).unwrap()).collect();
    FlowSettings { private: all(private), open_world: all(open_world), destructive: Vec::new() }
}

async fn host(flow: FlowSettings) -> Host {
    let policy = Policy::strict()
        .with_sandbox(false)
        .with_commands([puppet_path().display().to_string()])
        .with_flow(flow);
    let rich = Puppet::new()
        .plain_tool("read")
        .plain_tool("send")
        .with(|s| s.capabilities = Some(json!({"tools": {}, "resources": {}})))
        .on("resources/read", [Step::Reply(json!({"contents": [{"uri": "a://b", "text": "x"}]}))]);
    let servers = ["files", "web", "calc"].map(|name| puppet(name, &rich));
    quick().policy(policy).servers(servers).start().await.unwrap()
}

/// Answers with this, and keeps why it was asked.
#[derive(Clone)]
struct Says(Answer, Arc<Mutex<Vec<String>>>);

impl Says {
    fn new(answer: Answer) -> Self {
        Self(answer, Arc::default())
    }

    fn asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.1.lock().unwrap())
    }
}

impl Asker for Says {
    fn offers(&self) -> Offers {
        Offers::default()
    }

    fn ask(&self, _: &ServerName, question: Question) -> Answered {
        if let Question::Consent(consent) = question {
            self.1.lock().unwrap().push(consent.reason.unwrap_or_default());
        }
        Box::pin(std::future::ready(self.0.clone()))
    }
}

fn is_held(outcome: &Outcome) -> bool {
    match outcome.error.as_deref() {
        Some(Error::Denied { rule, hint, .. }) => {
            assert!(rule.contains("flow.open-world") && rule.contains("files/read"), "{rule}");
            assert!(hint.contains("[flow]"), "{hint}");
            true
        }
        None => false,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn l23_what_was_read_from_private_does_not_reach_the_open_world() {
    let host = host(labels(&["files/read"], &["web"])).await;
    let agent = host.session("a").permission(Permission::Yolo).start().unwrap();
    let other = host.session("b").permission(Permission::Yolo).start().unwrap();
    assert!(agent.call("web_send", json!({})).await.success, "nothing private was read yet");
    assert!(agent.call("files_send", json!({})).await.success, "this tool is not labelled");
    assert!(agent.call("web_send", json!({})).await.success);
    assert!(agent.call("files_read", json!({})).await.success);
    assert!(is_held(&agent.call("web_send", json!({})).await));
    assert!(
        is_held(&agent.call_tool("web", "read", json!({}), Default::default()).await),
        "every tool of it"
    );
    assert!(agent.call("calc_send", json!({})).await.success, "what is not labelled is free");
    assert!(agent.call("files_read", json!({})).await.success, "and so is what is private");
    assert!(other.call("web_send", json!({})).await.success, "another session has read nothing");
    let child = agent.session("c").permission(Permission::Yolo).start().unwrap();
    assert!(is_held(&child.call("web_send", json!({})).await), "what its maker has read, it may know");
    host.close().await;
}

#[tokio::test]
async fn l23_somebody_can_allow_it_once_or_for_the_tool() {
    let host = host(labels(&["files"], &["web"])).await;
    let once = Says::new(Answer::Allow(Reach::Once));
    let agent = host.session("a").permission(Permission::Yolo).asker(once.clone()).start().unwrap();
    agent.call("files_read", json!({})).await;
    for _ in 0..2 {
        assert!(agent.call("web_send", json!({})).await.success);
        let asked = once.asked();
        assert_eq!(asked.len(), 1, "each time");
        assert!(asked[0].contains("files/read") && asked[0].contains("open world"), "{asked:?}");
    }
    let tool = Says::new(Answer::Allow(Reach::Tool));
    let agent = host.session("b").permission(Permission::Yolo).asker(tool.clone()).start().unwrap();
    agent.call("files_read", json!({})).await;
    for asked in [1, 0] {
        assert!(agent.call("web_send", json!({})).await.success);
        assert_eq!(tool.asked().len(), asked);
    }
    assert!(agent.call("web_read", json!({})).await.success);
    assert_eq!(tool.asked().len(), 1, "another tool is another question");
    let all = Says::new(Answer::Allow(Reach::Session));
    let agent = host.session("d").permission(Permission::Yolo).asker(all).start().unwrap();
    agent.call("files_read", json!({})).await;
    assert!(is_held(&agent.call("web_send", json!({})).await), "a yes to everything was not offered");
    host.close().await;
}

#[tokio::test]
async fn l23_resources_count_as_reading_and_as_reaching_out() {
    let host = host(labels(&["files"], &["web"])).await;
    let agent = host.session("a").permission(Permission::Yolo).start().unwrap();
    assert!(agent.read_resource("web", "a://b").await.is_ok());
    assert!(agent.read_resource("files", "a://b").await.is_ok());
    let held = agent.call("web_send", json!({})).await;
    assert!(error(&held).to_string().contains("files/resources/read"), "{held:?}");
    let held = agent.read_resource("web", "a://secret").await.unwrap_err();
    assert!(held.to_string().contains("flow.open-world"), "{held}");
    host.close().await;
}

#[tokio::test]
async fn l23_the_program_itself_is_held_to_it_too() {
    let host = host(labels(&["files"], &["web"])).await;
    assert!(host.call("web_send", json!({})).await.success);
    host.call("files_read", json!({})).await;
    assert!(is_held(&host.call("web_send", json!({})).await));
    host.close().await;
}

#[test]
fn l23_the_rule_is_a_function_of_labels_and_what_was_read() {
    let (server, tool) =
        (|name: &str| ServerName::parse(name).unwrap(), |name: &str| ToolName::parse(name).unwrap());
    let flow = FlowSettings {
        destructive: vec![FlowLabel::parse("disk/wipe*").unwrap()],
        ..labels(&["mail/get_*"], &["web", "mail/send"])
    };
    let policy = Policy::strict().with_sandbox(false).with_flow(flow);
    let read = Tainted { server: server("mail"), tool: tool("get_all") };
    assert!(policy.taints(&server("mail"), Some(&tool("get_all"))));
    assert!(!policy.taints(&server("mail"), Some(&tool("send"))));
    assert!(
        !policy.taints(&server("mail"), None),
        "only a label of the whole server is about what is no tool"
    );
    let judge = |taint: Option<&Tainted>, of: &str, name: &str| {
        policy.judge_flow(taint, &server(of), Some(&tool(name)))
    };
    assert_eq!(judge(None, "web", "any"), None);
    assert_eq!(judge(Some(&read), "web", "any"), Some(FlowReason::OpenWorld(read.clone())));
    assert_eq!(judge(Some(&read), "mail", "send"), Some(FlowReason::OpenWorld(read.clone())));
    assert_eq!(judge(Some(&read), "mail", "get_one"), None);
    assert_eq!(judge(None, "disk", "wipe_all"), Some(FlowReason::Destructive));
    assert_eq!(judge(None, "disk", "read"), None);
}

#[test]
fn l23_labels_come_from_the_operators_file_and_a_wrong_one_ends_the_load() {
    let files = folder();
    let path = at(&files, "wharf.toml");
    let load = |text: &str| {
        std::fs::write(&path, text).unwrap();
        config::load(&Sources { explicit: vec![path.clone()], ..Sources::default() })
    };
    let config = load("[flow]\nprivate = [\"files\"]\nopen-world = [\"web/fetch\"]\n").unwrap();
    assert_eq!(config.flow, labels(&["files"], &["web/fetch"]));
    for (wrong, why) in [
        ("[flow]\npublic = [\"web\"]\n", "unknown label"),
        ("[flow]\nprivate = \"files\"\n", "list of strings"),
        ("[flow]\nprivate = [\"files/\"]\n", "name of a tool"),
        ("flow = 1\n", "must be a table"),
    ] {
        let said = load(wrong).unwrap_err().to_string();
        assert!(said.contains(why), "{said}");
    }
}

#[tokio::test]
async fn l23_in_the_gateway_a_conversation_or_a_caller_is_what_has_read() {
    let door = open(host(labels(&["files"], &["web"])).await).await;
    let call = |name: &str| json!({"name": name, "arguments": {}});
    let modern = async |name: &str| door.modern("tools/call", call(name)).await.json();
    assert!(modern("web_send").await["result"].is_object());
    assert!(modern("files_read").await["result"].is_object());
    let held = modern("web_send").await;
    assert_eq!(held["error"]["message"], "unknown tool", "a refusal reads like nothing there: {held}");
    // What a caller says of itself does not make it another one.
    let other = json!({"name": "web_send", "arguments": {}, "_meta": {
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}}}});
    let held = door.modern("tools/call", other).await.json();
    assert!(held["error"].is_object(), "{held}");
    let legacy = async |session: &str, name: &str| {
        let message = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call(name)});
        let answer = door.legacy(Some(session), message).await;
        answer.body.contains("\"content\"")
    };
    let (first, second) = (door.greet().await, door.greet().await);
    assert!(legacy(&first, "web_send").await, "a conversation begins with nothing read");
    assert!(legacy(&first, "files_read").await);
    assert!(!legacy(&first, "web_send").await);
    assert!(legacy(&second, "web_send").await, "another conversation has read nothing");
}
