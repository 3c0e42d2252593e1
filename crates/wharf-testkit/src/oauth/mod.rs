//! An authorization server on loopback, and a guard before any MCP server.
//!
//! In: rules, which may be lies. Out: metadata, codes, tokens, and a book of everything that was handed out. Honest rules
//! check all that a client must send: PKCE, the redirect address, the resource, the client's proof. A refresh token that
//! comes twice ends the whole login, so that two that renew at once are found out.

mod answers;

use std::collections::{HashMap, HashSet};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http::{HttpPuppet, Recorded, Reply};

/// An authorization server that lives as long as this value.
#[derive(Debug)]
pub struct Authority {
    puppet: HttpPuppet,
    desk: Arc<Desk>,
}

/// What it does, where that is not the usual thing.
#[derive(Clone)]
pub struct Rules {
    /// How many seconds a token lives.
    pub life: Option<u64>,
    /// Whether tokens can be renewed.
    pub renewable: bool,
    /// Whether each renewal makes a new refresh token, and ends the old one.
    pub rotate: bool,
    /// How clients prove who they are; the first is given to clients that register.
    pub methods: Vec<&'static str>,
    /// Changes what it says of itself.
    pub metadata: Edit,
    /// Changes what a browser comes back with: an object of texts.
    pub returned: Edit,
    /// Changes what the token endpoint gives.
    pub tokens: Edit,
}

/// A change to a JSON value.
pub type Edit = Arc<dyn Fn(&mut Value) + Send + Sync>;

/// A handler for an [`HttpPuppet`].
pub type Handler = Arc<dyn Fn(Recorded) -> Pin<Box<dyn Future<Output = Reply> + Send>> + Send + Sync>;

/// A guard before a server.
#[derive(Clone)]
pub struct Guard {
    desk: Arc<Desk>,
    /// Changes what the server says of itself.
    pub metadata: Edit,
    /// What its refusals say beside `Bearer`, with `{prm}` for where its metadata are; `None` for no header at all.
    pub challenge: Option<String>,
    /// The scope that a call of this tool needs.
    pub scope_of: HashMap<String, String>,
}

struct Desk {
    rules: Rules,
    book: Mutex<Book>,
}

/// What was handed out.
#[derive(Default, Debug)]
struct Book {
    next: u64,
    clients: HashMap<String, Client>,
    codes: HashMap<String, Login>,
    access: HashMap<String, Login>,
    refresh: HashMap<String, Login>,
    /// Refresh tokens that were used up.
    spent: HashSet<String>,
    renewals: usize,
    registrations: Vec<Value>,
    revoked: Vec<String>,
}

#[derive(Clone, Debug)]
struct Client {
    secret: Option<String>,
    method: String,
    redirects: Vec<String>,
}

#[derive(Clone, Debug)]
struct Login {
    client: String,
    redirect: String,
    challenge: String,
    resource: String,
    scope: String,
    family: u64,
}

impl Default for Rules {
    fn default() -> Self {
        let same: Edit = Arc::new(|_| {});
        Self {
            life: Some(3600),
            renewable: true,
            rotate: true,
            methods: vec!["none", "client_secret_basic", "client_secret_post"],
            metadata: Arc::clone(&same),
            returned: Arc::clone(&same),
            tokens: same,
        }
    }
}

// === impl Authority ===

impl Authority {
    /// An honest one. Must be called inside a Tokio runtime.
    pub fn start() -> Self {
        Self::with(Rules::default())
    }

    /// One with these rules.
    pub fn with(rules: Rules) -> Self {
        let desk = Arc::new(Desk { rules, book: Mutex::default() });
        let answering = Arc::clone(&desk);
        let puppet = HttpPuppet::start(move |request| std::future::ready(answering.answer(&request)));
        Self { puppet, desk }
    }

    /// Its name.
    pub fn issuer(&self) -> String {
        self.puppet.url_of("")
    }

    /// A guard that lets in those who have a token of this server.
    pub fn guard(&self) -> Guard {
        let issuer = self.issuer();
        Guard {
            desk: Arc::clone(&self.desk),
            metadata: Arc::new(move |metadata| metadata["authorization_servers"] = json!([issuer])),
            challenge: Some("resource_metadata=\"{prm}\"".to_owned()),
            scope_of: HashMap::new(),
        }
    }

    /// A client that was registered by hand.
    pub fn add_client(&self, id: &str, secret: Option<&str>, method: &str) {
        let client =
            Client { secret: secret.map(str::to_owned), method: method.to_owned(), redirects: Vec::new() };
        self.desk.book().clients.insert(id.to_owned(), client);
    }

    /// From now on no access token is good; those that renew are.
    pub fn end_access(&self) {
        self.desk.book().access.clear();
    }

    /// From now on nothing is good.
    pub fn end_logins(&self) {
        let mut book = self.desk.book();
        book.access.clear();
        book.refresh.clear();
    }

    /// How often a token was renewed.
    pub fn renewals(&self) -> usize {
        self.desk.book().renewals
    }

    /// Which clients registered, as they described themselves.
    pub fn registrations(&self) -> Vec<Value> {
        self.desk.book().registrations.clone()
    }

    /// Which tokens were handed back.
    pub fn revoked(&self) -> Vec<String> {
        self.desk.book().revoked.clone()
    }

    /// Every access token that is good, and every one that renews.
    pub fn secrets(&self) -> Vec<String> {
        let book = self.desk.book();
        book.access.keys().chain(book.refresh.keys()).cloned().collect()
    }

    /// What it was asked so far, in order.
    pub fn requests(&self) -> Vec<Recorded> {
        self.puppet.requests()
    }
}

// === impl Guard ===

impl Guard {
    /// Stands before a handler.
    pub fn before<F, R>(self, handler: F) -> Handler
    where
        F: Fn(Recorded) -> R + Send + Sync + 'static,
        R: Future<Output = Reply> + Send + 'static,
    {
        let handler = Arc::new(handler);
        Arc::new(move |request: Recorded| match self.judge(&request) {
            Some(reply) => Box::pin(std::future::ready(reply)),
            None => Box::pin(handler(request)),
        })
    }

    /// Whether somebody is let in with this `Authorization`.
    pub fn admits(&self, authorization: Option<&str>) -> bool {
        let token = authorization.and_then(|text| text.strip_prefix("Bearer "));
        token.is_some_and(|token| self.desk.book().access.contains_key(token))
    }

    /// The answer of the guard itself, if it has one.
    pub fn judge(&self, request: &Recorded) -> Option<Reply> {
        const WELL_KNOWN: &str = "/.well-known/oauth-protected-resource";
        let origin = format!("http://{}", request.header("host").unwrap_or_default());
        if let Some(path) = request.path.strip_prefix(WELL_KNOWN) {
            let mut metadata = json!({ "resource": format!("{origin}{path}") });
            (self.metadata)(&mut metadata);
            return Some(Reply::ok(metadata));
        }
        let token = request.header("authorization").and_then(|text| text.strip_prefix("Bearer "));
        let login = token.and_then(|token| self.desk.book().access.get(token).cloned());
        let path = request.path.split('?').next().unwrap_or_default();
        let challenge = |more: &str| {
            let says = self.challenge.as_ref()?;
            Some(format!("Bearer {more}{}", says.replace("{prm}", &format!("{origin}{WELL_KNOWN}{path}"))))
        };
        let refuse = |status: u16, more: &str| match challenge(more) {
            Some(header) => Some(Reply::status(status).with("www-authenticate", &header)),
            None => Some(Reply::status(status)),
        };
        // A token for another server is none here.
        let Some(login) = login.filter(|login| login.resource.starts_with(&origin)) else {
            return refuse(401, "");
        };
        let tool = request.json()["params"]["name"].as_str().unwrap_or_default().to_owned();
        match self.scope_of.get(&tool) {
            Some(scope) if !login.scope.split(' ').any(|has| has == scope) => {
                refuse(403, &format!("error=\"insufficient_scope\", scope=\"{scope}\", "))
            }
            _ => None,
        }
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Guard").field("challenge", &self.challenge).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rules").field("life", &self.life).finish_non_exhaustive()
    }
}

// === impl Desk ===

impl Desk {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }
}

impl std::fmt::Debug for Desk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Desk").field("book", &self.book).finish_non_exhaustive()
    }
}

/// Opens a page as a browser would, and gives the address that it leads to.
///
/// # Panics
/// If nobody is there.
pub async fn consent(page: &str) -> Option<String> {
    let answer = fetch(page).await;
    let header = |line: &str| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("location").then(|| value.trim().to_owned())
    };
    answer.lines().find_map(header)
}

/// Gets a page of plain HTTP, head and body.
///
/// # Panics
/// If nobody is there.
pub async fn fetch(page: &str) -> String {
    let rest = page.strip_prefix("http://").expect("a page on loopback");
    let (host, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let mut stream = TcpStream::connect(host).await.expect("somebody listens there");
    let request = format!("GET {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("somebody reads there");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("somebody answers there");
    answer
}
