//! What of a server's lists is shown.
//!
//! In: lists as the server gave them. Out: what `policy` permits of them, and word of what was kept back, once. The lists
//! themselves stay as they came, so that another lock shows another part of them without the server being asked.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use super::server::{Seen, Server};
use crate::catalog::scan::{self, Finding, Neighbours, Severity};
use crate::catalog::{Offered, Rejected};
use crate::error::{Error, Result};
use crate::event::Event;
use crate::mcp::{HEADER_ANNOTATION, ListKind, Tool};
use crate::policy::{Policy, ScanRule};
use crate::wire::{Json, fingerprint};

/// What was shown last, and of what that was made.
#[derive(Default)]
pub(super) struct Shown {
    last: Mutex<Option<Last>>,
    /// What was told of: kind, name, and the fingerprint, or nothing for what is gone.
    told: Mutex<HashSet<(ListKind, String, String)>>,
    /// What the scan found in definitions, by their text. A list that changes in one place is not looked through again.
    found: Mutex<HashMap<Json, Arc<[Finding]>>>,
}

struct Last {
    under: Arc<Policy>,
    of: Arc<[Arc<Tool>]>,
    /// What the server said besides that cannot be used. It is another each time that the server is asked.
    besides: Arc<[Rejected]>,
    shown: Seen,
}

/// A server that offers ever new things is not told of for ever.
const MOST_TOLD: usize = 1000;
/// More definitions than these are looked through again.
const MOST_FOUND: usize = 4 * crate::registry::TOOLS_MAX;

// === impl Server ===

impl Server {
    /// Whether only what was accepted of it may be used.
    pub(super) fn is_locked(&self) -> bool {
        self.policy.with(|policy| policy.is_locked(&self.config.name))
    }

    /// May this definition be used?
    pub(super) fn permit(&self, kind: ListKind, name: &str, raw: &Json) -> Result<()> {
        self.policy
            .with(|policy| policy.permit_definition(&self.config.name, kind, name, || fingerprint(raw)))
    }

    /// The tools that may be used; the others are among the rejected. Of a server that is held to what was accepted, in the
    /// order of their names, so that the order is the same before it is started and after.
    pub(super) fn shown(&self, seen: Seen) -> Seen {
        let policy = self.policy.now();
        let locked = policy.is_locked(&self.config.name);
        if !locked && policy.scan() == ScanRule::Off {
            return seen;
        }
        let mut last = self.shown.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = &*last
            && Arc::ptr_eq(&last.under, &policy)
            && Arc::ptr_eq(&last.of, &seen.offered.tools)
            && Arc::ptr_eq(&last.besides, &seen.rejected)
            && Arc::ptr_eq(&last.shown.offered.config, &seen.offered.config)
        {
            return last.shown.clone();
        }
        let (of, besides) = (Arc::clone(&seen.offered.tools), Arc::clone(&seen.rejected));
        let mut rejected = besides.to_vec();
        let mut tools: Vec<Arc<Tool>> = Vec::with_capacity(of.len());
        for tool in of.iter() {
            let live = || tool.fingerprint().to_owned();
            let name = tool.name.as_str();
            let permitted = policy
                .permit_definition(&self.config.name, ListKind::Tools, name, live)
                .and_then(|()| self.scanned(&policy, (ListKind::Tools, name), &tool.raw));
            match permitted {
                Ok(None) => tools.push(Arc::clone(tool)),
                Ok(Some(clean)) => match tool.retold(clean) {
                    Ok(retold) => tools.push(Arc::new(retold)),
                    Err(reason) => rejected.push(Rejected { name: name.into(), reason, denied: None }),
                },
                Err(error) => {
                    self.tell_blocked(ListKind::Tools, tool.name.as_str(), tool.fingerprint(), &error);
                    rejected.push(blocked(tool.name.as_str(), error));
                }
            }
        }
        for gone in policy.accepted(&self.config.name, ListKind::Tools) {
            if !of.iter().any(|tool| tool.name.as_str() == gone) {
                self.tell_gone(gone);
            }
        }
        if locked {
            tools.sort_by(|one, other| one.name.cmp(&other.name));
        } else if tools.len() == of.len()
            && tools.iter().zip(of.iter()).all(|(one, other)| Arc::ptr_eq(one, other))
        {
            *last = Some(Last { under: policy, of, besides, shown: seen.clone() });
            return seen;
        }
        let shown = self.seen(tools.into(), rejected, seen.offered.ttl);
        *last = Some(Last { under: policy, of, besides, shown: shown.clone() });
        shown
    }

    /// The same for another list.
    pub(super) fn shown_list<T>(
        &self,
        kind: ListKind,
        mut list: Offered<T>,
        parts: impl Fn(&T) -> (&str, &Json),
        read: impl Fn(Json) -> Result<T, String>,
    ) -> Offered<T> {
        let policy = self.policy.now();
        // Resources come and go: they are not held to anything.
        let locked = kind != ListKind::Resources && policy.is_locked(&self.config.name);
        if !locked && policy.scan() == ScanRule::Off {
            return list;
        }
        let (mut items, all) = (Vec::with_capacity(list.items.len()), std::mem::take(&mut list.items));
        for item in all {
            let (name, raw) = parts(&item);
            let permitted = if locked { self.permit(kind, name, raw) } else { Ok(()) };
            match permitted.and_then(|()| self.scanned(&policy, (kind, name), raw)) {
                Ok(None) => items.push(item),
                Ok(Some(clean)) => items.extend(read(clean).ok()),
                Err(error) => {
                    self.tell_blocked(kind, name, &fingerprint(raw), &error);
                    list.rejected.push(blocked(name, error));
                }
            }
        }
        Offered { items, ..list }
    }

    /// Whether the scan lets a definition be used, and how it is told where it is told otherwise.
    fn scanned(&self, policy: &Policy, (kind, name): (ListKind, &str), raw: &Json) -> Result<Option<Json>> {
        if policy.scan() == ScanRule::Off {
            return Ok(None);
        }
        let server = &self.config.name;
        let found = self.found(kind, name, raw);
        self.tell_found(&found);
        for finding in found.iter() {
            let what = format!("{} `{}`", kind.word(), crate::text::Escaped(name));
            policy.permit_finding(server, &what, finding.rule, finding.severity == Severity::High)?;
        }
        let hides = policy.scan() == ScanRule::Strip && !found.is_empty();
        Ok(hides.then(|| scan::strip(raw)).filter(|clean| clean != raw))
    }

    fn found(&self, kind: ListKind, name: &str, raw: &Json) -> Arc<[Finding]> {
        let known = || self.shown.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known().get(raw) {
            return Arc::clone(found);
        }
        let found: Arc<[Finding]> =
            scan::definition(&self.config.name, (kind, name), raw, &Neighbours::new()).into();
        let mut known = known();
        if known.len() >= MOST_FOUND {
            known.clear();
        }
        known.insert(raw.clone(), Arc::clone(&found));
        found
    }

    /// Whether the scan lets a result be passed on, and as what.
    pub(super) fn scanned_result(&self, what: &str, raw: Json) -> Result<Json> {
        if self.policy.with(|policy| policy.scan_results() == ScanRule::Off) {
            return Ok(raw);
        }
        let policy = self.policy.now();
        let rule = policy.scan_results();
        let found = scan::result(&self.config.name, what, &raw);
        found.iter().for_each(|finding| self.tell_finding(finding));
        let what = format!("the result of `{}`", crate::text::Escaped(what));
        for finding in &found {
            let grave = finding.severity == Severity::High;
            policy.permit_finding(&self.config.name, &what, finding.rule, grave)?;
        }
        Ok(if rule == ScanRule::Strip { scan::strip(&raw) } else { raw })
    }

    /// Tells of findings that were not told of yet.
    pub(super) fn tell_found(&self, found: &[Finding]) {
        for finding in found {
            let (kind, name) = match &finding.subject {
                scan::Subject::Definition(kind, name) => (*kind, name.as_str()),
                _ => (ListKind::Tools, ""),
            };
            let place = format!("{} {} {}", finding.rule, finding.pointer, finding.excerpt);
            if self.is_news(kind, name, &place) {
                self.tell_finding(finding);
            }
        }
    }

    fn tell_finding(&self, finding: &Finding) {
        self.events.publish(|| Event::Suspicious {
            server: finding.server.clone(),
            rule: finding.rule,
            grave: finding.severity == Severity::High,
            finding: finding.to_string(),
        });
    }

    fn tell_blocked(&self, kind: ListKind, name: &str, fingerprint: &str, error: &Error) {
        if self.is_news(kind, name, fingerprint) {
            let hint = error.hint().map(|hint| format!("; {hint}")).unwrap_or_default();
            self.events.publish(|| Event::Blocked {
                server: self.config.name.clone(),
                kind,
                name: name.into(),
                reason: format!("{error}{hint}"),
            });
        }
    }

    fn tell_gone(&self, tool: &str) {
        if self.is_news(ListKind::Tools, tool, "") {
            let server = self.config.name.clone();
            let message = format!(
                "server `{server}` has no tool `{}` any more, which is in the lockfile; see `wharf diff {server}`",
                crate::text::Escaped(tool)
            );
            self.events.publish(|| Event::Warning { server, message });
        }
    }

    /// Tells once of a tool that wants arguments repeated in headers in a way that there is not. Other entries that cannot be
    /// used are seen by whoever lists them.
    pub(super) fn tell_unsendable(&self, rejected: &Rejected) {
        let whole = self.view.as_ref().map_or(self, |view| &view.of);
        let name = rejected.name.raw();
        let is_it = rejected.reason.contains(HEADER_ANNOTATION);
        if is_it && whole.is_news(ListKind::Tools, name, &rejected.reason) {
            let (server, tool) = (self.config.name.clone(), crate::text::Escaped(name));
            let reason = crate::text::Escaped(&rejected.reason);
            let message = format!("tool `{tool}` of server `{server}` is left out: {reason}");
            self.events.publish(|| Event::Warning { server, message });
        }
    }

    fn is_news(&self, kind: ListKind, name: &str, fingerprint: &str) -> bool {
        let mut told = self.shown.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.len() < MOST_TOLD && told.insert((kind, name.to_owned(), fingerprint.to_owned()))
    }
}

fn blocked(name: &str, error: Error) -> Rejected {
    Rejected { name: name.into(), reason: error.to_string(), denied: Some(Box::new(error)) }
}
