//! The examples of `docs/library.md` as one program: `agent-local [WHARF]`, where `WHARF` is the `wharf` binary.
//!
//! No model is asked and no key is needed: what a model would answer is written down here.
#![allow(clippy::print_stdout, reason = "a program speaks to its user")]

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use wharf::ask::{Answer, Answered, Asker, Offers, Question};
use wharf::policy::Reach;
use wharf::provider::{Compiler, Provider};
use wharf::sandbox::Sandbox;
use wharf::{Context, Docking, Event, Host, LocalTool, Permission, Policy, Reply};
use wharf::{ServerConfig, ServerName, Session};

#[derive(Deserialize, JsonSchema)]
struct Berth {
    /// The name of a boat.
    boat: String,
    /// How long it is, in metres.
    length: f64,
}

#[derive(Serialize, JsonSchema)]
struct Place {
    number: usize,
}

/// What the agent remembers: any type will do.
#[derive(Default)]
struct Harbour(Vec<String>);

struct Master(String);

fn tools() -> Vec<LocalTool> {
    let berth = LocalTool::new("berth", "Finds a place for a boat", async |boat: Berth, context: Context| {
        if boat.length > 40.0 {
            return Err("no place is that long");
        }
        let before = context.state().get::<Harbour>().map_or(0, |harbour| harbour.0.len());
        context.state().update(move |harbour: Option<&Harbour>| {
            let moored = harbour.map(|harbour| harbour.0.clone()).unwrap_or_default();
            Harbour(moored.into_iter().chain([boat.boat.clone()]).collect())
        });
        Ok(Reply::structured(&Place { number: before + 1 }))
    });
    let weather = LocalTool::blocking("weather", "Looks out of the window", |_: wharf::NoArguments, _| {
        std::thread::sleep(Duration::from_millis(5));
        Ok::<_, String>("a light breeze")
    });
    let appoint =
        LocalTool::new("appoint", "Makes somebody harbour master", async |who: Who, context: Context| {
            tokio::time::sleep(Duration::from_millis(20)).await;
            context.state().set(Master(who.name));
            Ok::<_, String>(())
        });
    vec![berth.returns::<Place>(), weather, appoint.ask_first()]
}

#[derive(Deserialize, JsonSchema)]
struct Who {
    name: String,
}

/// A person at a desk, who says yes to everything but to Bluebeard.
struct Desk;

impl Asker for Desk {
    fn offers(&self) -> Offers {
        Offers { forms: true, ..Offers::default() }
    }

    fn ask(&self, server: &ServerName, question: Question) -> Answered {
        let answer = match question {
            Question::Consent(consent) => {
                println!("{} wants {server}.{} {}", consent.caller, consent.tool, consent.arguments);
                let is_bad = consent.arguments.to_string().contains("Bluebeard");
                if is_bad { Answer::Decline } else { Answer::Allow(Reach::Tool) }
            }
            Question::Form(form) => Answer::Accept(form.with_defaults(&json!({ "name": "Ada" }).into())),
            _ => Answer::Decline,
        };
        Box::pin(std::future::ready(answer))
    }
}

#[tokio::main]
async fn main() -> wharf::Result<()> {
    let policy = Policy::strict().with_commands(wharf_binary());
    let sandbox = Sandbox::new(wharf_binary().unwrap_or_default());
    let host = Host::builder().policy(policy).sandbox(sandbox).start().await?;
    for tool in tools() {
        host.register(tool)?;
    }
    let outcome = host.call("berth", json!({ "boat": "Argo", "length": 12.5 })).await;
    println!("{}", outcome.into_result()?.to_text());

    let mate = host.session("mate").permission(Permission::Trusted).asker(Desk).start()?;
    let mut events = host.events().subscribe();
    consent(&mate).await;
    state(&mate).await;
    model(&mate).await?;
    if let Some(binary) = wharf_binary() {
        server(&mate, &binary).await?;
    }
    while let Ok(event) = events.try_recv() {
        if let Event::ToolInvoked(call) = event {
            println!("{}: {}.{} {}", call.caller, call.server, call.tool, call.error.unwrap_or("ended"));
        }
    }
    mate.close().await;
    host.close().await;
    Ok(())
}

fn wharf_binary() -> Option<String> {
    std::env::args().nth(1)
}

async fn consent(mate: &Session) {
    let refused = mate.call("appoint", json!({ "name": "Bluebeard" })).await;
    println!("{}", refused.to_text());
    let allowed = mate.call("appoint", json!({ "name": "Ada" })).await;
    println!("allowed: {}", allowed.success);
}

async fn state(mate: &Session) {
    let (first, second) = tokio::join!(
        mate.call("berth", json!({ "boat": "Argo", "length": 12.5 })),
        mate.call("berth", json!({ "boat": "Beagle", "length": 27.5 })),
    );
    let moored = mate.state().get::<Harbour>().map_or(0, |harbour| harbour.0.len());
    println!("updates: {} and {}, {moored} boats", first.success, second.success);

    let (first, second) = tokio::join!(
        mate.call("appoint", json!({ "name": "Grace" })),
        mate.call("appoint", json!({ "name": "Edsger" })),
    );
    for outcome in [first, second] {
        match outcome.into_result() {
            Ok(_) => println!("appointed"),
            Err(error) => println!("{}: {}", error.kind(), error.hint().unwrap_or_default()),
        }
    }
    let master = mate.state().get::<Master>();
    println!("one master: {}", master.is_some_and(|master| ["Grace", "Edsger"].contains(&master.0.as_str())));
}

async fn model(mate: &Session) -> wharf::Result<()> {
    let provider = Provider::of_model("claude-sonnet-4-5")?;
    let compiled = Compiler::new().compile(provider, mate.tools().await.snapshot.tools());
    println!("{} tools for {}", compiled.toolset.len(), provider.name());
    let body = json!({ "role": "assistant", "stop_reason": "tool_use", "content": [
        { "type": "text", "text": "Let me see." },
        { "type": "tool_use", "id": "toolu_1", "name": "weather", "input": {} },
        { "type": "tool_use", "id": "toolu_2", "name": "berth", "input": { "boat": "Vasa", "length": "long" } },
    ]});
    let answer = provider.answer(&body.into(), &compiled.toolset)?;
    let done = mate.run_calls(answer.calls).await;
    for message in provider.results(&done) {
        println!("{}", message.as_str());
    }
    Ok(())
}

async fn server(mate: &Session, binary: &str) -> wharf::Result<()> {
    let demo = ServerConfig::stdio(ServerName::parse("demo")?, binary, ["test-server"]);
    let names = mate.connect(Docking::new(demo).allow_all()).await?;
    println!("{} tools, the first is {}", names.len(), names[0]);

    let resource = mate.read_resource("demo", "demo://greeting").await?;
    println!("{}", resource.contents[0].text().map(|text| text.lines().to_string()).unwrap_or_default());
    let arguments = BTreeMap::from([("name".to_owned(), "Ada".to_owned())]);
    let prompt = mate.prompt("demo", "greet", &arguments).await?;
    println!("{} message for the {}", prompt.messages.len(), prompt.messages[0].role);

    #[derive(Deserialize)]
    struct Sum {
        sum: f64,
    }
    let add = mate.callable("demo", "add").await?;
    let Sum { sum } = add.call_as(&json!({ "a": 2, "b": 3 })).await?;
    println!("{sum}");
    println!("{}", mate.call("demo_ask", json!({})).await.to_text());
    Ok(())
}
