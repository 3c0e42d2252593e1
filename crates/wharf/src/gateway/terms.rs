//! On which terms callers are received, as far as that may change while the gateway serves.
//!
//! In: [`Terms`], as the program or its configuration has them. Out: who a request comes from, judged by those that hold
//! now; and when others take their place, the end of what they do not allow any more. What a caller has under way by a key
//! and rules that stay is not touched.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use super::Gateway;
use super::caller::{Callers, Refused, Tokens, token};
use super::desk::Desk;
use super::h1::Head;
use super::stay::{Guest, Stay};
use crate::config::{CallLimits, CallerTable, JwtSettings};
use crate::error::{Error, Result as Checked};
use crate::host::Host;
use crate::names::{CallerName, ServerName};

/// On which terms callers are received. All of it can be replaced while the gateway serves: see [`Gateway::adopt`].
#[derive(Clone, Debug, Default)]
pub struct Terms {
    /// Who may call by a key. Defaults to anyone on this machine.
    pub callers: Callers,
    /// Whose tokens are taken too. Defaults to nobody's.
    pub tokens: Option<JwtSettings>,
    /// What each caller is given. Defaults to everything for whoever is let in.
    pub rules: Option<CallerTable>,
    /// How much callers may ask for at a time.
    pub limits: CallLimits,
    /// Who may see how the whole is. Defaults to everyone who is let in, where none is given less than the whole.
    pub operators: Option<Vec<CallerName>>,
    /// Servers without which the gateway is not ready. Defaults to none.
    pub required: Vec<ServerName>,
}

/// Who is let in, and who may see what.
#[derive(Debug)]
pub(super) struct Admission {
    pub(super) callers: Callers,
    pub(super) tokens: Option<Arc<Tokens>>,
    /// Of those who are not asked who they are.
    anyone: Stay,
    /// Who may see how the whole is; `None`: whoever is given the whole.
    pub(super) operators: Option<Vec<CallerName>>,
    /// Without which it is not ready.
    pub(super) required: Vec<ServerName>,
}

/// How often is looked whether somebody's key or token has gone or lapsed.
const LOOK: Duration = Duration::from_secs(1);

// === impl Gateway ===

impl Gateway {
    /// Receives callers on other terms from now on. Every request that comes is judged by them. Calls, streams and
    /// sessions that are under way go on, but for those of a caller whose key was taken away, who came by a token whose
    /// settings are others now, or who is not given any more what it uses: those end with an error, and it is on record.
    ///
    /// # Errors
    /// If the gateway could not serve on these terms where it listens. Then nothing was changed.
    pub fn adopt(&self, terms: Terms) -> Checked<()> {
        let settings = &self.settings;
        // One after the other, and nobody waits for this but others that do the same.
        let listening = settings.listening.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let Terms { callers, tokens, rules, limits, operators, required } = terms;
        let before = settings.admission.load_full();
        let next = before.succeeded_by(&callers, tokens, self.desk.host()).with(operators, required);
        listening.iter().try_for_each(|at| next.may_listen(*at, settings.url.is_some()))?;
        let next = Arc::new(next);
        settings.admission.store(Arc::clone(&next));
        settings.adopted.send_replace(());
        before.give_way(&next);
        self.desk.gate.adopt(limits, !next.is_anyone());
        self.desk.give(rules);
        self.desk.withdraw();
        Ok(())
    }

    /// Looks after what ends by itself: keys that are taken from their file, keys and tokens that lapse. As long as the gateway is there.
    pub(super) fn keep_watch(&self) {
        let (settings, desk) = (Arc::downgrade(&self.settings), Arc::downgrade(self.desk.desk()));
        let (clock, mut adopted) = (self.desk.clock.clone(), self.settings.adopted.subscribe());
        tokio::spawn(async move {
            loop {
                // Where nobody says who they are nothing lapses, and nobody is woken to see that.
                while settings.upgrade().is_some_and(|settings| settings.admission.load().is_anyone()) {
                    if adopted.changed().await.is_err() {
                        return;
                    }
                }
                clock.wait(LOOK).await;
                let (Some(settings), Some(desk)) = (Weak::upgrade(&settings), Weak::upgrade(&desk)) else {
                    return;
                };
                if settings.admission.load().look() {
                    desk.withdraw();
                }
            }
        });
    }
}

// === impl Admission ===

impl Admission {
    pub(super) fn new(callers: Callers, tokens: Option<JwtSettings>, host: &Host) -> Self {
        let tokens = tokens.map(|settings| {
            let (policy, net) = host.reaching_later();
            Arc::new(Tokens::new(settings, policy, net))
        });
        Self { callers, tokens, anyone: Stay::default(), operators: None, required: Vec::new() }
    }

    pub(super) fn with(self, operators: Option<Vec<CallerName>>, required: Vec<ServerName>) -> Self {
        Self { operators, required, ..self }
    }

    /// Who a request comes from. `us` is whom its token must be for.
    pub(super) async fn admit(&self, head: &Head, us: &str) -> Result<Guest, Refused> {
        if self.is_anyone() {
            return Ok(Guest::new(CallerName::local(), &self.anyone));
        }
        let token = token(head)?;
        if let Some(guest) = self.callers.by_key(token) {
            return Ok(guest);
        }
        match &self.tokens {
            // Three parts: what is none of a JWT is not worth a question to its issuer.
            Some(tokens) if token.split('.').count() == 3 => Box::pin(tokens.judge(token, us)).await,
            _ => Err(Refused::Unknown("that key is not known here")),
        }
    }

    /// Where anybody can knock, everybody is asked who they are.
    pub(super) fn may_listen(&self, at: SocketAddr, has_url: bool) -> Checked<()> {
        if let Some(tokens) = &self.tokens {
            tokens.check()?;
            if at.ip().is_unspecified() && !has_url {
                return Err(Error::Config {
                    message: format!("tokens are made for an address, and {at} is none"),
                    hint: Some("say where callers reach the gateway: `url` in `[gateway]`".into()),
                });
            }
        }
        if at.ip().is_loopback() || !self.is_anyone() {
            return Ok(());
        }
        Err(Error::Denied {
            what: format!("serving at {at}"),
            rule: "an address that others can reach needs callers that say who they are".into(),
            hint: "make keys for your callers, or bind 127.0.0.1".into(),
        })
    }

    /// Looks whether something that let somebody in has gone or lapsed. True if somebody's stay has ended since.
    fn look(&self) -> bool {
        let lapsed = self.tokens.as_ref().is_some_and(|tokens| tokens.look());
        self.callers.look() || lapsed
    }

    /// Whether nobody is asked who they are: then all of them are one caller.
    pub(super) fn is_anyone(&self) -> bool {
        self.callers.is_anyone() && self.tokens.is_none()
    }

    /// Those who are let in after these. What is the same goes on to be it; nothing ends yet.
    fn succeeded_by(&self, callers: &Callers, tokens: Option<JwtSettings>, host: &Host) -> Self {
        let known = self.tokens.as_ref().filter(|known| Some(&known.settings) == tokens.as_ref());
        let mut next = Self::new(self.callers.succeeded_by(callers), tokens, host);
        if let Some(known) = known {
            next.tokens = Some(Arc::clone(known));
        }
        if self.is_anyone() && next.is_anyone() {
            next.anyone = self.anyone.clone();
        }
        next
    }

    /// Ends the stay of everyone who is not let in any more.
    fn give_way(&self, next: &Self) {
        self.callers.give_way(&next.callers);
        if let Some(tokens) = &self.tokens
            && !next.tokens.as_ref().is_some_and(|next| Arc::ptr_eq(tokens, next))
        {
            tokens.end();
        }
        if self.is_anyone() && !next.is_anyone() {
            self.anyone.end();
        }
    }
}

// === impl Desk ===

impl Desk {
    /// Gives callers what other rules give them. Whoever is given something else is told that its lists are others.
    fn give(&self, rules: Option<CallerTable>) {
        let rules = rules.map(Arc::new);
        self.callers.store(rules.clone());
        let of = |caller: &CallerName| rules.as_ref().map(|rules| rules.rules_of(caller));
        let changed: HashSet<CallerName> = self.host().regive(self.number, of);
        if !changed.is_empty() {
            self.offers.changed();
            self.news.tell_all_to(|caller| changed.contains(caller));
        }
    }

    /// Ends what nobody may do any more.
    fn withdraw(&self) {
        self.parking.withdraw();
        self.bells.ring();
    }
}
