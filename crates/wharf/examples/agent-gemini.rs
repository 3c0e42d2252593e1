//! An agent on Gemini: `agent-gemini QUESTION [CONFIG]`.
//!
//! `GEMINI_API_KEY` and `GEMINI_MODEL` are needed; `GEMINI_BASE_URL` is `https://generativelanguage.googleapis.com`
//! unless it is set.
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

const FORM: Provider = Provider::Gemini;

#[derive(Serialize)]
struct Request<'a> {
    contents: Vec<Json>,
    tools: &'a Json,
}

fn main() -> ExitCode {
    agent::run(answer)
}

async fn answer(host: &Host, question: &str) -> Result<String> {
    let key = Secret::new(agent::variable("GEMINI_API_KEY")?);
    let model =
        Model::new("GEMINI", "https://generativelanguage.googleapis.com", vec![("x-goog-api-key", key)])?;
    let path = format!("/v1beta/models/{}:generateContent", model.name);
    let compiled = Compiler::new().compile(FORM, agent::tools(host).await.snapshot.tools());
    let mut history = History::default();
    history.say(json!({ "role": "user", "parts": [{ "text": question }] }));
    for _ in 0..TURNS {
        let request = Request { contents: history.messages(FORM), tools: &compiled.tools };
        let body = model.ask(&path, &request).await?;
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
