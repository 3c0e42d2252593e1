//! Calls that somebody must allow, through the gateway: who can be asked is asked, in its own era's way; who cannot is
//! told by which number to come back.

use serde_json::{Value, json};
use wharf::config::{CallerRules, CallerTable};
use wharf::store::{ApprovalOptions, Reaching, Said};
use wharf_testkit::Puppet;

use super::pipe::Caller;
use super::{Answer, Door, open_with};
use crate::approvals::queue;
use crate::audit::log_in;
use crate::support::{at, count, folder, puppet, quick, received};

struct Scene {
    files: tempfile::TempDir,
    door: Door,
}

async fn scene(options: ApprovalOptions) -> Scene {
    let files = folder();
    let script = Puppet::new().plain_tool("push").log(at(&files, "seen"));
    let host = quick().server(puppet("git", &script)).approvals(queue(&log_in(&files), options));
    let mut rules = CallerTable::default();
    rules.insert("*", CallerRules::new(["git"], []).unwrap().asking(["git/push"]).unwrap());
    let door = open_with(host.start().await.unwrap(), |builder| builder.rules(rules)).await;
    Scene { files, door }
}

impl Scene {
    async fn call(&self, capabilities: Value, more: Value) -> Answer {
        let mut params = json!({"name": "git_push", "arguments": {"to": "main"}});
        params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = capabilities;
        for (key, value) in more.as_object().unwrap() {
            params[key] = value.clone();
        }
        self.door.modern("tools/call", params).await
    }

    fn sent(&self) -> usize {
        count(&received(&at(&self.files, "seen")), "tools/call")
    }
}

fn forms() -> Value {
    json!({"elicitation": {"form": {}}})
}

#[tokio::test]
async fn l22_a_modern_caller_is_asked_by_a_form() {
    for (answer, runs) in [
        (json!({"action": "accept", "content": {"allow": "once"}}), true),
        (json!({"action": "accept", "content": {"allow": "no"}}), false),
        (json!({"action": "accept", "content": {"allow": "everything"}}), false),
        (json!({"action": "accept"}), false),
        (json!({"action": "decline"}), false),
    ] {
        let scene = scene(ApprovalOptions::default()).await;
        let asked = scene.call(forms(), json!({})).await.json();
        assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
        let (name, question) = asked["result"]["inputRequests"].as_object().unwrap().iter().next().unwrap();
        assert_eq!(question["method"], "elicitation/create");
        let message = question["params"]["message"].as_str().unwrap();
        assert!(message.contains("push") && message.contains("git") && message.contains("main"), "{message}");
        assert_eq!(scene.sent(), 0);
        let retry =
            json!({"inputResponses": {name: answer}, "requestState": asked["result"]["requestState"]});
        let done = scene.call(forms(), retry).await.json();
        let failed = done["result"]["isError"] == true;
        assert_eq!((scene.sent() == 1, !failed), (runs, runs), "{answer}: {done}");
        let again = scene.call(forms(), json!({})).await.json();
        assert_eq!(again["result"]["resultType"], "input_required", "asked about each call: {again}");
        scene.door.host.close().await;
    }
}

#[tokio::test]
async fn l22_a_caller_that_cannot_be_asked_is_told_the_number() {
    for options in
        [ApprovalOptions::default(), ApprovalOptions { callers: false, ..ApprovalOptions::default() }]
    {
        let capabilities = if options.callers { json!({}) } else { forms() };
        let scene = scene(options).await;
        let told = scene.call(capabilities.clone(), json!({})).await.json();
        let text = told["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{told}"));
        assert!(told["result"]["isError"] == true && text.contains("wharf approve 1"), "{text}");
        let session = scene.door.greet().await;
        let call = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "git_push", "arguments": {"to": "main"}}});
        let legacy = scene.door.legacy(Some(&session), call.clone()).await.json();
        assert!(
            legacy["result"]["content"][0]["text"].as_str().unwrap().contains("wharf approve 1"),
            "{legacy}"
        );
        assert_eq!(scene.sent(), 0);
        let desk = queue(&log_in(&scene.files), ApprovalOptions::default());
        assert!(desk.answer(1, Said::Allow(Reaching::Once), None).unwrap());
        let done = scene.call(capabilities, json!({})).await.json();
        assert!(done["result"]["isError"] != true && scene.sent() == 1, "{done}");
        scene.door.host.close().await;
    }
}

#[tokio::test]
async fn l22_a_legacy_caller_is_asked_by_a_request() {
    let files = folder();
    let script = Puppet::new().plain_tool("push").log(at(&files, "seen"));
    let policy = wharf::Policy::strict()
        .with_sandbox(false)
        .with_commands([wharf_testkit::puppet_path().display().to_string()])
        .with_asked([wharf::policy::ToolPattern::parse("git/push").unwrap()]);
    let host = quick().policy(policy).server(puppet("git", &script)).start().await.unwrap();
    let mut caller = Caller::of(&host);
    caller.greet(forms()).await;
    for (allow, runs) in [("once", 1), ("no", 1), ("tool", 2)] {
        caller.say(json!({"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": "git_push", "arguments": {}}})).await;
        let question = caller.next().await;
        assert_eq!(question["method"], "elicitation/create", "{question}");
        let result = json!({"action": "accept", "content": {"allow": allow}});
        caller.say(json!({"jsonrpc": "2.0", "id": question["id"], "result": result})).await;
        let done = caller.next().await;
        assert_eq!(
            (done["id"].clone(), done["result"]["isError"] == true),
            (json!(5), allow == "no"),
            "{done}"
        );
        assert_eq!(count(&received(&at(&files, "seen")), "tools/call"), runs);
    }
    // It was allowed for this tool: nobody is asked any more.
    caller.say(json!({"jsonrpc": "2.0", "id": 6, "method": "tools/call", "params": {"name": "git_push", "arguments": {}}})).await;
    assert_eq!(caller.next().await["id"], 6);
    host.close().await;
}
