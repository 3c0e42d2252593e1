//! What the authorization server answers, endpoint by endpoint.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::{Book, Client, Desk, Login};
use crate::http::{Recorded, Reply};

type Form = Map<String, Value>;

impl Desk {
    pub(super) fn answer(&self, request: &Recorded) -> Reply {
        let issuer = format!("http://{}", request.header("host").unwrap_or_default());
        let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
        match (request.method.as_str(), path) {
            ("GET", "/.well-known/oauth-authorization-server") => self.metadata(&issuer),
            ("POST", "/register") => self.register(&request.json()),
            ("GET", "/authorize") => self.authorize(&issuer, &form(query)),
            ("POST", "/token") => self.token(request),
            ("POST", "/revoke") => self.revoke(request),
            _ => Reply::status(404),
        }
    }

    fn metadata(&self, issuer: &str) -> Reply {
        let mut metadata = json!({
            "issuer": issuer,
            "authorization_endpoint": format!("{issuer}/authorize"),
            "token_endpoint": format!("{issuer}/token"),
            "registration_endpoint": format!("{issuer}/register"),
            "revocation_endpoint": format!("{issuer}/revoke"),
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "token_endpoint_auth_methods_supported": self.rules.methods,
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        });
        (self.rules.metadata)(&mut metadata);
        Reply::ok(metadata)
    }

    fn register(&self, asked: &Value) -> Reply {
        let texts = |name: &str| -> Vec<String> {
            let list = asked[name].as_array().into_iter().flatten();
            list.filter_map(|text| text.as_str().map(str::to_owned)).collect()
        };
        let redirects = texts("redirect_uris");
        if redirects.is_empty() || asked["application_type"] != "native" {
            return refuse("invalid_client_metadata");
        }
        let mut book = self.book();
        book.registrations.push(asked.clone());
        let method = self.rules.methods.first().copied().unwrap_or("none").to_owned();
        let secret = (method != "none").then(|| book.make("secret"));
        let id = book.make("client");
        book.clients.insert(id.clone(), Client { secret: secret.clone(), method: method.clone(), redirects });
        let mut given = json!({ "client_id": id, "token_endpoint_auth_method": method });
        if let Some(secret) = secret {
            given["client_secret"] = json!(secret);
        }
        Reply::Json(201, Vec::new(), given)
    }

    /// Whoever comes consents.
    fn authorize(&self, issuer: &str, asked: &Form) -> Reply {
        let get = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut book = self.book();
        // A document's address is a client by itself; a client made by hand goes back to any port of this machine.
        let id = get("client_id");
        let redirect = get("redirect_uri");
        let is_known = match book.clients.get(&id) {
            Some(client) => client.redirects.is_empty() || client.redirects.contains(&redirect),
            None => id.starts_with("https://"),
        };
        let is_whole = get("response_type") == "code"
            && get("code_challenge_method") == "S256"
            && get("code_challenge").len() == 43
            && get("state").len() >= 16
            && !get("resource").is_empty()
            && redirect.starts_with("http://127.0.0.1:");
        if !is_known || !is_whole {
            return Reply::status(400);
        }
        let code = book.make("code");
        let family = book.next;
        let login = Login {
            client: id,
            redirect: redirect.clone(),
            challenge: get("code_challenge"),
            resource: get("resource"),
            scope: get("scope"),
            family,
        };
        book.codes.insert(code.clone(), login);
        drop(book);
        let mut returned = json!({ "code": code, "state": get("state"), "iss": issuer });
        (self.rules.returned)(&mut returned);
        let pairs = returned.as_object().into_iter().flatten();
        let pairs = pairs.map(|(name, value)| (name.as_str(), value.as_str().unwrap_or_default()));
        let query: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
        Reply::Redirect(302, format!("{redirect}?{}", query.join("&")))
    }

    fn token(&self, request: &Recorded) -> Reply {
        let asked = form(&String::from_utf8_lossy(&request.body));
        let get = |name: &str| asked.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
        let mut book = self.book();
        let Some(client) = book.proven(request, &asked) else {
            return refuse("invalid_client");
        };
        let login = match get("grant_type").as_str() {
            "authorization_code" => {
                let login = book.codes.remove(&get("code"));
                let proof = URL_SAFE_NO_PAD.encode(Sha256::digest(get("code_verifier")));
                login.filter(|login| login.challenge == proof && login.redirect == get("redirect_uri"))
            }
            "refresh_token" => {
                let token = get("refresh_token");
                if book.spent.contains(&token) {
                    // Two use the same token: nobody knows which of them stole it.
                    book.refresh.clear();
                    book.access.clear();
                    return refuse("invalid_grant");
                }
                let login = book.refresh.get(&token).cloned();
                if login.is_some() {
                    book.renewals += 1;
                    if self.rules.rotate {
                        book.refresh.remove(&token);
                        book.spent.insert(token);
                    }
                }
                login
            }
            _ => return refuse("unsupported_grant_type"),
        };
        let fits = |login: &Login| login.client == client && login.resource == get("resource");
        let Some(login) = login.filter(fits) else {
            return refuse("invalid_grant");
        };
        let renews = get("grant_type") == "authorization_code" || self.rules.rotate;
        self.hand_out(&mut book, login, renews)
    }

    fn hand_out(&self, book: &mut Book, login: Login, renews: bool) -> Reply {
        let access = book.make("access");
        let mut given = json!({ "access_token": access, "token_type": "Bearer", "scope": login.scope });
        if let Some(life) = self.rules.life {
            given["expires_in"] = json!(life);
        }
        if self.rules.renewable && renews {
            let refresh = book.make("refresh");
            given["refresh_token"] = json!(refresh);
            book.refresh.insert(refresh, login.clone());
        }
        book.access.insert(access, login);
        (self.rules.tokens)(&mut given);
        Reply::ok(given)
    }

    fn revoke(&self, request: &Recorded) -> Reply {
        let asked = form(&String::from_utf8_lossy(&request.body));
        let mut book = self.book();
        if book.proven(request, &asked).is_none() {
            return refuse("invalid_client");
        }
        let token = asked.get("token").and_then(Value::as_str).unwrap_or_default().to_owned();
        if let Some(login) = book.refresh.remove(&token) {
            book.access.retain(|_, other| other.family != login.family);
        }
        book.access.remove(&token);
        book.revoked.push(token);
        Reply::status(200)
    }
}

impl Book {
    /// Something that nobody guesses, and everybody recognises.
    fn make(&mut self, kind: &str) -> String {
        self.next += 1;
        let hash = Sha256::digest(format!("{kind}{}{:p}", self.next, std::ptr::from_ref(self)));
        format!("{kind}-{}-{}", self.next, URL_SAFE_NO_PAD.encode(&hash[..12]))
    }

    /// The client that sent a form, if it proves so in the way that it is to.
    fn proven(&self, request: &Recorded, asked: &Form) -> Option<String> {
        let get = |name: &str| asked.get(name).and_then(Value::as_str).map(str::to_owned);
        let basic = request.header("authorization").and_then(|text| text.strip_prefix("Basic "));
        let (id, secret, method) = match basic {
            Some(basic) => {
                let pair = String::from_utf8(STANDARD.decode(basic).ok()?).ok()?;
                let (id, secret) = pair.split_once(':')?;
                (decoded(id), Some(decoded(secret)), "client_secret_basic")
            }
            None => {
                let secret = get("client_secret");
                let method = if secret.is_some() { "client_secret_post" } else { "none" };
                (get("client_id")?, secret, method)
            }
        };
        match self.clients.get(&id) {
            Some(client) => (client.secret == secret && client.method == method).then_some(id),
            None => (id.starts_with("https://") && method == "none").then_some(id),
        }
    }
}

fn refuse(error: &str) -> Reply {
    Reply::Json(400, Vec::new(), json!({ "error": error }))
}

fn form(text: &str) -> Form {
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    pairs.map(|(name, value)| (decoded(name), Value::from(decoded(value)))).collect()
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
                continue;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        at += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

fn encoded(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-._~".contains(&b);
    text.bytes().map(|b| if plain(b) { char::from(b).to_string() } else { format!("%{b:02X}") }).collect()
}
