//! What other rules would have decided: every call on record is judged once more, by a file that is only tried.
//!
//! In: a `wharf.toml` and records. Out: differences first, each once with how often it was met. Nothing is started, and
//! nobody is asked.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use wharf::config::{self, Config, Sources};
use wharf::names::{CallerName, ServerName, ToolName};
use wharf::policy::{Decision, Grants, Identity, Permission, Policy, Standing, Subject};
use wharf::store::Record;

use crate::app::{App, Setup};
use crate::failure::Result;

/// What is judged: caller, server, tool; and what was decided.
type Case = (String, String, String, &'static str);

struct Judge {
    tried: Config,
    policy: Policy,
    now: Setup,
}

pub(super) fn run(app: &App, file: &Path, records: &[Record]) -> Result<()> {
    let sources =
        Sources { explicit: vec![file.to_owned()], env: app.world.env.clone(), ..Sources::default() };
    let tried = config::load(&sources)?;
    let judge = Judge { policy: Policy::from(&tried.policy), tried, now: app.setup()? };
    let mut cases: BTreeMap<Case, usize> = BTreeMap::new();
    for record in records {
        let value: Value = serde_json::from_str(&record.json).unwrap_or_default();
        if let Some(case) = case(&value) {
            *cases.entry(case).or_default() += 1;
        }
    }
    let mut judged: Vec<_> = cases
        .into_iter()
        .map(|(case, times)| {
            let (decision, why) = judge.decide(&case);
            (case, times, decision, why)
        })
        .collect();
    // Differences first; what was allowed and would not be, before all.
    judged.sort_by_key(|((.., was), _, now, _)| (was == now, *was != "allow"));
    let differ = judged.iter().filter(|((.., was), _, now, _)| was != now).count();
    if app.ui.json {
        let shape = |((caller, server, tool, was), times, now, why): &(Case, usize, &str, String)| json!({ "caller": caller, "server": server, "tool": tool, "calls": times, "was": was, "now": now, "differs": was != now, "why": why });
        let decisions: Vec<Value> = judged.iter().map(shape).collect();
        return Ok(app.ui.document(&json!({ "differences": differ, "decisions": decisions }))?);
    }
    let row = |((caller, server, tool, was), times, now, why): (Case, usize, &str, String)| {
        let change = if was == now { now.to_owned() } else { format!("{was} → {now}") };
        vec![change, times.to_string(), caller, server, wharf::text::Escaped(&tool).to_string(), why]
    };
    let rows: Vec<Vec<String>> = judged.into_iter().map(row).collect();
    app.ui.rows(&["decision", "calls", "caller", "server", "tool", "why"], &rows)?;
    app.ui.note(match differ {
        0 => "these rules would have decided everything as it was decided".to_owned(),
        1 => "one decision would be another".to_owned(),
        more => format!("{more} decisions would be others"),
    });
    Ok(())
}

/// A record that is the decision on a call.
fn case(value: &Value) -> Option<Case> {
    if value["kind"] != "call" {
        return None;
    }
    let text = |key: &str| value[key].as_str().map(str::to_owned);
    let asked = value["rule"]
        .as_str()
        .is_some_and(|rule| rule.starts_with("consent") || rule.starts_with("approval"));
    let was = match value["decision"].as_str()? {
        "allow" | "deny" if asked => "ask",
        "allow" => "allow",
        _ => "deny",
    };
    Some((text("caller")?, text("server")?, text("tool")?, was))
}

impl Judge {
    fn decide(&self, (caller, server, tool, _): &Case) -> (&'static str, String) {
        let names = (CallerName::parse(caller), ServerName::parse(server), ToolName::parse(tool));
        let (Ok(caller), Ok(server), Ok(tool)) = names else {
            return ("deny", "it has no valid name".into());
        };
        let known = self.tried.servers.get(&server).or_else(|| self.now.config.servers.get(&server));
        let identity = known.map(|config| Identity::Server(config.identity()));
        let subject = match (known, &identity) {
            (Some(config), Some(identity)) => Subject::Server { config, identity, definition: None },
            // The program's own function, or a server that is not configured any more.
            _ => Subject::Local { set: &server, ask: false },
        };
        if caller == CallerName::local() {
            return said(self.policy.judge_program(&caller, &subject, &tool, None));
        }
        let rules = self.tried.callers.as_ref().map(|callers| callers.rules_of(&caller));
        let grants = Grants::default();
        let who = Standing {
            caller: &caller,
            permission: Some(Permission::Yolo),
            grants: &grants,
            rules: rules.as_deref(),
            taint: None,
        };
        said(self.policy.judge_call(&who, &subject, &tool))
    }
}

/// A decision in a word, and why.
fn said(decision: wharf::error::Result<Decision>) -> (&'static str, String) {
    match decision {
        Ok(Decision::Permit(_)) => ("allow", String::new()),
        Ok(Decision::Ask(_)) => ("ask", String::new()),
        Err(error) => ("deny", error.to_string()),
    }
}
