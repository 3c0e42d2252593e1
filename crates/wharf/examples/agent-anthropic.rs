//! An agent on Anthropic's Messages: `agent-anthropic QUESTION [CONFIG]`.
//!
//! `ANTHROPIC_API_KEY` and `ANTHROPIC_MODEL` are needed; `ANTHROPIC_BASE_URL` is `https://api.anthropic.com` unless it
//! is set.
#![allow(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program reads its environment and speaks to its user"
)]

mod agent;

use std::process::ExitCode;

use agent::{Model, Result, TURNS};
use serde::Serialize;
use serde_json::json;
use wharf::Host;
use wharf::provider::{Compiler, History, Provider, ToolMessage};
use wharf::secret::Secret;
use wharf::wire::Json;

const FORM: Provider = Provider::Anthropic;

#[derive(Serialize)]
struct Request<'a> {
    model: &'a str,
    max_tokens: u32,
    messages: Vec<Json>,
    tools: &'a Json,
}

fn main() -> ExitCode {
    agent::run(answer)
}

async fn answer(host: &Host, question: &str) -> Result<String> {
    let key = Secret::new(agent::variable("ANTHROPIC_API_KEY")?);
    let headers = vec![("x-api-key", key), ("anthropic-version", Secret::new("2023-06-01"))];
    let model = Model::new("ANTHROPIC", "https://api.anthropic.com", headers)?;
    let compiled = Compiler::new().compile(FORM, agent::tools(host).await.snapshot.tools());
    let mut history = History::default();
    history.say(json!({ "role": "user", "content": question }));
    for _ in 0..TURNS {
        let request = Request {
            model: &model.name,
            max_tokens: 8192,
            messages: history.messages(FORM),
            tools: &compiled.tools,
        };
        let body = model.ask("/v1/messages", &request).await?;
        let answer = FORM.answer(&body, &compiled.toolset)?;
        if answer.calls.is_empty() {
            return agent::said(&answer);
        }
        history.answer(&answer);
        let done = host.run_calls(answer.calls).await;
        history.results(done.iter().map(|(call, outcome)| ToolMessage::new(call, outcome)));
    }
    Err(format!("no answer after {TURNS} turns").into())
}
