//! A host with servers in cells, for the tests of the sandbox: it can be started as another user than the tests run as.
//!
//! In: a JSON document on standard input: `home`, `protect`, `engine`, `servers` (`name`, `command`, `args`, `env`, `cwd`,
//! `sandbox`) and `steps` (`server`, `code`). Out: a JSON document: what came of each step, `warnings`, and why servers did not start. It is its
//! own stage.
#![allow(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    clippy::print_stdout,
    reason = "a program for tests may fail loudly, and speaks by its standard output"
)]

use std::process::ExitCode;

use serde_json::{Value, json};
use wharf::config::{Profile, SandboxSetting, ServerConfig, Transport};
use wharf::names::ServerName;
use wharf::sandbox::{Engine, Sandbox};
use wharf::secret::Secret;
use wharf::{Host, policy::Policy};

fn main() -> ExitCode {
    if let Some(code) = wharf::sandbox::stage(std::env::args_os()) {
        return code;
    }
    let order: Value = serde_json::from_reader(std::io::stdin()).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    println!("{}", runtime.block_on(run(&order)));
    ExitCode::SUCCESS
}

async fn run(order: &Value) -> Value {
    let mut env: Vec<(String, String)> = std::env::vars().filter(|(name, _)| name != "HOME").collect();
    if let Some(path) = order["path"].as_str() {
        env.push(("PATH".into(), path.into()));
    }
    env.push(("HOME".into(), order["home"].as_str().unwrap().into()));
    let mut sandbox = Sandbox::new(std::env::current_exe().unwrap()).protect(texts(&order["protect"]));
    match order["engine"].as_str() {
        Some("none") => sandbox = sandbox.engine(Engine::None("there is no engine".into())),
        Some("own") => sandbox = sandbox.engine(Engine::Own),
        Some(path) => sandbox = sandbox.engine(Engine::Bubblewrap(path.into())),
        None => {}
    }
    let servers: Vec<ServerConfig> = order["servers"].as_array().unwrap().iter().map(server).collect();
    let commands: Vec<String> =
        order["servers"].as_array().unwrap().iter().map(|s| text(&s["command"])).collect();
    let policy = Policy::strict().with_commands(commands).with_strict(false);
    let builder = Host::builder().policy(policy).environment(env).servers(servers).sandbox(sandbox);
    let host = builder.start().await.unwrap();
    let mut told = host.events().subscribe();
    let mut unstarted = Vec::new();
    for server in order["servers"].as_array().unwrap() {
        if let Err(error) = host.berth(server["name"].as_str().unwrap()).unwrap().connect().await {
            unstarted.push(format!("{error} | {}", error.hint().unwrap_or_default()));
        }
    }
    let mut files = Vec::new();
    for _ in 0..order["starts"].as_u64().unwrap_or(0) {
        let berth = host.berth("cell").unwrap();
        berth.connect().await.unwrap();
        berth.disconnect().await;
        files.push(std::fs::read_dir("/proc/self/fd").unwrap().count());
    }
    let mut done = Vec::new();
    for step in order["steps"].as_array().unwrap() {
        let outcome =
            host.call(&format!("{}_run", text(&step["server"])), json!({"code": step["code"]})).await;
        done.push(match &outcome.error {
            None => outcome.to_text(),
            Some(error) => format!("failed: {error} | {}", error.hint().unwrap_or_default()),
        });
    }
    let mut warnings = Vec::new();
    while let Ok(event) = told.try_recv() {
        if let wharf::Event::Warning { message, .. } = event {
            warnings.push(message);
        }
    }
    host.close().await;
    json!({ "steps": done, "warnings": warnings, "unstarted": unstarted, "files": [files.get(1), files.last()] })
}

fn server(value: &Value) -> ServerConfig {
    let name = ServerName::parse(value["name"].as_str().unwrap()).unwrap();
    let mut config = ServerConfig::stdio(name, text(&value["command"]), texts(&value["args"]));
    if let Transport::Stdio(stdio) = &mut config.transport {
        stdio.cwd = value["cwd"].as_str().map(Into::into);
        let env = value["env"].as_object().into_iter().flatten();
        stdio.env = env.map(|(name, value)| (name.clone(), Secret::new(text(value)))).collect();
    }
    config.sandbox = match &value["sandbox"] {
        Value::Null => None,
        Value::Bool(false) => Some(SandboxSetting::Off),
        profile => Some(SandboxSetting::On(Box::new(read(profile)))),
    };
    config
}

fn read(value: &Value) -> Profile {
    let mut profile = Profile {
        read: texts(&value["read"]).into_iter().map(Into::into).collect(),
        write: texts(&value["write"]).into_iter().map(Into::into).collect(),
        domains: texts(&value["domains"]),
        unix_sockets: value["unix_sockets"] == true,
        ..Profile::default()
    };
    let numbers = [
        ("memory", &mut profile.memory),
        ("processes", &mut profile.processes),
        ("open_files", &mut profile.open_files),
        ("file_size", &mut profile.file_size),
        ("scratch", &mut profile.scratch),
    ];
    for (name, field) in numbers {
        if let Some(number) = value[name].as_u64() {
            *field = number;
        }
    }
    profile
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().map(text).collect()
}
