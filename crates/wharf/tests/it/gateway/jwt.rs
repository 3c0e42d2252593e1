//! Callers with tokens of an issuer: which are taken, which are not, and what goes no further.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use http::{Method, StatusCode};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode, get_current_timestamp};
use serde_json::{Value, json};
use url::Url;
use wharf::Host;
use wharf::config::{JwtSettings, ServerConfig};
use wharf::gateway::{Callers, Gateway, Key};
use wharf::names::{CallerName, ServerName};
use wharf_testkit::http::honest_modern;
use wharf_testkit::{Era, HttpPuppet, Puppet, Recorded, Reply};

use super::{Answer, Door, open_with};
use crate::support::{at, folder, host, puppet, received};

/// Somebody who makes tokens.
pub(super) struct Issuer {
    puppet: HttpPuppet,
    keys: Arc<Mutex<Vec<Jwk>>>,
    down: Arc<AtomicBool>,
    signer: Signer,
}

struct Signer {
    id: String,
    algorithm: Algorithm,
    key: EncodingKey,
    public: Jwk,
}

fn plain(bytes: impl AsRef<[u8]>) -> String {
    base64::Engine::encode(&base64::engine::general_purpose::URL_SAFE_NO_PAD, bytes)
}

impl Signer {
    fn new(id: &str, algorithm: Algorithm) -> Self {
        let kind = match algorithm {
            Algorithm::EdDSA => &rcgen::PKCS_ED25519,
            Algorithm::RS256 | Algorithm::PS256 => &rcgen::PKCS_RSA_SHA256,
            _ => &rcgen::PKCS_ECDSA_P256_SHA256,
        };
        let pair = rcgen::KeyPair::generate_for(kind).unwrap();
        let der = pair.serialize_der();
        let key = match algorithm {
            Algorithm::EdDSA => EncodingKey::from_ed_der(&der),
            // The key itself begins after the wrapping.
            Algorithm::RS256 | Algorithm::PS256 => EncodingKey::from_rsa_der(&der[26..]),
            _ => EncodingKey::from_ec_der(&der),
        };
        let raw = pair.public_key_raw();
        let public = match algorithm {
            Algorithm::EdDSA => json!({"kty": "OKP", "crv": "Ed25519", "x": plain(raw), "kid": id}),
            Algorithm::RS256 | Algorithm::PS256 => {
                json!({"kty": "RSA", "n": plain(&raw[9..265]), "e": "AQAB", "kid": id, "use": "sig"})
            }
            // A point: a four, then its two halves.
            _ => {
                json!({"kty": "EC", "crv": "P-256", "x": plain(&raw[1..33]), "y": plain(&raw[33..]), "kid": id, "alg": "ES256"})
            }
        };
        Self { id: id.into(), algorithm, key, public: serde_json::from_value(public).unwrap() }
    }

    fn public(&self) -> Jwk {
        self.public.clone()
    }

    fn sign(&self, claims: &Value) -> String {
        let mut header = Header::new(self.algorithm);
        header.kid = Some(self.id.clone());
        encode(&header, claims, &self.key).unwrap()
    }
}

impl Issuer {
    pub(super) fn start() -> Self {
        let signer = Signer::new("k1", Algorithm::ES256);
        let keys = Arc::new(Mutex::new(vec![signer.public()]));
        let down = Arc::new(AtomicBool::new(false));
        let (shown, is_down) = (Arc::clone(&keys), Arc::clone(&down));
        let puppet = HttpPuppet::start(move |asked: Recorded| {
            let base = format!("http://{}", asked.header("host").unwrap());
            let answer = match asked.path.as_str() {
                _ if is_down.load(Ordering::SeqCst) => None,
                "/.well-known/oauth-authorization-server/realm" => {
                    Some(json!({"issuer": format!("{base}/realm"), "jwks_uri": format!("{base}/keys")}))
                }
                "/keys" => Some(json!({"keys": *shown.lock().unwrap()})),
                _ => None,
            };
            async move { answer.map_or_else(|| Reply::status(503), Reply::ok) }
        });
        Self { puppet, keys, down, signer }
    }

    fn name(&self) -> String {
        self.puppet.url_of("/realm")
    }

    pub(super) fn settings(&self) -> JwtSettings {
        JwtSettings::new(Url::parse(&self.name()).unwrap(), self.name())
    }

    /// What an honest token says.
    fn claims(&self, door: &Door) -> Value {
        let now = get_current_timestamp();
        let us = format!("http://{}/mcp", door.at);
        json!({"iss": self.name(), "aud": us, "sub": "annabel", "exp": now + 300, "scope": "mcp other"})
    }

    /// An honest token, that counts for so many seconds.
    pub(super) fn token(&self, door: &Door, seconds: u64) -> String {
        let mut claims = self.claims(door);
        // Thirty more are granted.
        claims["exp"] = json!(get_current_timestamp() + seconds - 30);
        self.signer.sign(&claims)
    }

    fn fetched(&self) -> usize {
        self.puppet.requests().iter().filter(|asked| asked.path == "/keys").count()
    }
}

async fn behind(issuer: &Issuer, host: Host) -> Door {
    open_with(host, |b| b.tokens(issuer.settings())).await
}

async fn list(door: &Door, token: &str) -> Answer {
    door.modern_with("tools/list", json!({}), &[("authorization", &format!("Bearer {token}"))]).await
}

fn challenge(answer: &Answer) -> &str {
    answer.headers["www-authenticate"].to_str().unwrap()
}

#[tokio::test]
#[expect(clippy::too_many_lines, reason = "a table of bad tokens")]
async fn gwy_01_only_a_token_that_the_issuer_made_for_us_opens_the_gateway() {
    let files = folder();
    let log = at(&files, "log");
    let issuer = Issuer::start();
    let door = behind(&issuer, host([puppet("pup", &Puppet::of(Era::Modern).log(&log))]).await).await;
    let good = issuer.claims(&door);
    let with = |key: &str, value: Value| {
        let mut claims = good.clone();
        claims[key] = value;
        issuer.signer.sign(&claims)
    };
    let without = |key: &str| {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(key);
        issuer.signer.sign(&claims)
    };
    let now = get_current_timestamp();
    let right = issuer.signer.sign(&good);
    let (signed, signature) = right.rsplit_once('.').unwrap();
    let (head, body) = signed.split_once('.').unwrap();
    let stranger = Signer::new("k1", Algorithm::ES256);
    let by_secret = |secret: &[u8]| {
        let mut header = Header::new(Algorithm::HS256);
        header.kid = Some("k1".into());
        encode(&header, &good, &EncodingKey::from_secret(secret)).unwrap()
    };
    let mut carried = Header::new(Algorithm::ES256);
    carried.jwk = Some(stranger.public());
    carried.jku = Some(issuer.puppet.url_of("/evil"));
    let public = serde_json::to_vec(&issuer.signer.public()).unwrap();
    let none = format!("{}.{body}.", plain(r#"{"alg":"none","typ":"JWT"}"#));
    let wrong = [
        ("expired", with("exp", json!(now - 60))),
        ("never expires", without("exp")),
        ("expires in words", with("exp", json!("tomorrow"))),
        ("not yet", with("nbf", json!(now + 120))),
        ("another issuer", with("iss", json!("https://evil.example"))),
        ("the issuer with a slash", with("iss", json!(format!("{}/", issuer.name())))),
        ("several issuers", with("iss", json!([issuer.name(), "https://evil.example"]))),
        ("no issuer", without("iss")),
        ("another audience", with("aud", json!("http://other/mcp"))),
        ("the beginning of the audience", with("aud", json!(format!("http://{}", door.at)))),
        ("no audience", without("aud")),
        ("nobody", without("sub")),
        ("a number", with("sub", json!(7))),
        ("who calls without a token", with("sub", json!("local"))),
        ("another's signature", stranger.sign(&good)),
        ("a key of its own", encode(&carried, &good, &stranger.key).unwrap()),
        ("a secret", by_secret(b"secret")),
        ("the public key as a secret", by_secret(&public)),
        ("none", none.clone()),
        ("none, with the signature", format!("{none}{signature}")),
        ("no signature", format!("{signed}.")),
        ("another body", format!("{head}.{}.{signature}", plain(good.to_string().replace("annabel", "eve")))),
        ("half", right[..right.len() / 2].to_owned()),
        ("four parts", format!("{right}.x")),
    ];
    for (what, token) in &wrong {
        let answer = list(&door, token).await;
        assert_eq!(answer.status, StatusCode::UNAUTHORIZED, "{what}: {answer:?}");
        assert!(challenge(&answer).contains("error=\"invalid_token\""), "{what}: {}", challenge(&answer));
        assert!(!answer.body.contains("annabel"), "nothing of the token is told: {answer:?}");
    }
    let query = format!("/mcp?access_token={right}");
    let name = door.name();
    let in_query = door.send(Method::POST, &query, &[("host", &name)], "{}").await;
    assert_eq!(in_query.status, StatusCode::UNAUTHORIZED);
    assert!(received(&log).is_empty(), "the server was never contacted");
    assert!(
        issuer.puppet.requests().iter().all(|asked| asked.path != "/evil"),
        "nobody goes where a token says"
    );

    for (what, token) in [
        ("right", right),
        ("among other audiences", with("aud", json!(["x", format!("http://{}/mcp", door.at)]))),
        ("a clock that is late", with("exp", json!(now - 10))),
        ("a clock that is early", with("nbf", json!(now + 10))),
    ] {
        let answer = list(&door, &token).await;
        assert_eq!(answer.status, StatusCode::OK, "{what}: {answer:?}");
    }
    assert!(!received(&log).is_empty());
    assert_eq!(issuer.fetched(), 1, "its keys are asked for once");
    door.host.close().await;
}

#[tokio::test]
async fn l92_keys_that_the_issuer_adds_are_found_and_unknown_ones_do_not_flood_it() {
    let issuer = Issuer::start();
    let fresh = Signer::new("k2", Algorithm::EdDSA);
    let door = behind(&issuer, Host::builder().start().await.unwrap()).await;
    let claims = issuer.claims(&door);
    assert_eq!(list(&door, &issuer.signer.sign(&claims)).await.status, StatusCode::OK);
    assert_eq!(issuer.fetched(), 1);
    // Asked a moment ago: it is not asked again, however many unknown keys are named.
    let calls = (0..50).map(|n| {
        let token = Signer::new(&format!("made-up-{n}"), Algorithm::EdDSA).sign(&claims);
        let door = &door;
        async move { list(door, &token).await.status }
    });
    let answers = futures_util::future::join_all(calls).await;
    assert!(answers.iter().all(|status| *status == StatusCode::UNAUTHORIZED));
    assert_eq!(issuer.fetched(), 1);

    let door = behind(&issuer, Host::builder().start().await.unwrap()).await;
    issuer.keys.lock().unwrap().push(fresh.public());
    let answer = list(&door, &fresh.sign(&issuer.claims(&door))).await;
    assert_eq!(answer.status, StatusCode::OK, "{answer:?}");
}

#[tokio::test]
async fn l92_each_kind_of_key_signs_in_its_own_way_and_no_other() {
    let issuer = Issuer::start();
    let kinds = [Algorithm::RS256, Algorithm::PS256, Algorithm::EdDSA];
    let signers = kinds.map(|kind| Signer::new(&format!("{kind:?}"), kind));
    issuer.keys.lock().unwrap().extend(signers.iter().map(Signer::public));
    // A secret that everybody can read, and a key that is not for signatures.
    let secret = json!({"kty": "oct", "k": plain("public knowledge"), "kid": "secret"});
    let mut sealing = serde_json::to_value(issuer.signer.public()).unwrap();
    (sealing["kid"], sealing["use"]) = (json!("sealing"), json!("enc"));
    for odd in [secret, sealing] {
        issuer.keys.lock().unwrap().push(serde_json::from_value(odd).unwrap());
    }
    let door = behind(&issuer, Host::builder().start().await.unwrap()).await;
    let claims = issuer.claims(&door);
    for signer in signers.iter().chain([&issuer.signer]) {
        assert_eq!(list(&door, &signer.sign(&claims)).await.status, StatusCode::OK, "{}", signer.id);
    }
    let by_secret = Header { kid: Some("secret".into()), ..Header::new(Algorithm::HS256) };
    let by_secret = encode(&by_secret, &claims, &EncodingKey::from_secret(b"public knowledge")).unwrap();
    let sealing = Header { kid: Some("sealing".into()), ..Header::new(Algorithm::ES256) };
    let sealing = encode(&sealing, &claims, &issuer.signer.key).unwrap();
    let nameless = encode(&Header::new(Algorithm::PS256), &claims, &signers[0].key).unwrap();
    for (what, token) in [("a secret", by_secret), ("not for this", sealing), ("one of two", nameless)] {
        assert_eq!(list(&door, &token).await.status, StatusCode::UNAUTHORIZED, "{what}");
    }
}

#[tokio::test]
async fn l92_an_issuer_that_does_not_answer_is_no_fault_of_the_caller() {
    let issuer = Issuer::start();
    issuer.down.store(true, Ordering::SeqCst);
    let door = behind(&issuer, Host::builder().start().await.unwrap()).await;
    let answer = list(&door, &issuer.signer.sign(&issuer.claims(&door))).await;
    assert_eq!(answer.status, StatusCode::SERVICE_UNAVAILABLE, "{answer:?}");
    assert!(answer.headers.contains_key("retry-after"));
    issuer.down.store(false, Ordering::SeqCst);
    let door = behind(&issuer, Host::builder().start().await.unwrap()).await;
    let token = issuer.signer.sign(&issuer.claims(&door));
    assert_eq!(list(&door, &token).await.status, StatusCode::OK);
    issuer.down.store(true, Ordering::SeqCst);
    assert_eq!(list(&door, &token).await.status, StatusCode::OK, "what is known serves on");
}

#[tokio::test]
async fn l92_the_gateway_says_who_gives_out_its_tokens() {
    let issuer = Issuer::start();
    let mut settings = issuer.settings();
    settings.scopes = vec!["mcp".into(), "tools".into()];
    settings.caller = "email".into();
    let key = Key::new(CallerName::parse("bob").unwrap(), Key::hash("a-key-of-bob"));
    let door = open_with(Host::builder().start().await.unwrap(), |b| {
        b.tokens(settings).callers(Callers::default().keys([key]))
    })
    .await;
    let name = door.name();
    for path in ["/.well-known/oauth-protected-resource", "/.well-known/oauth-protected-resource/mcp"] {
        let told = door.send(Method::GET, path, &[("host", &name)], "").await;
        assert_eq!(told.headers["content-type"], "application/json");
        let told = told.json();
        assert_eq!(told["resource"], format!("http://{name}/mcp"));
        assert_eq!(told["authorization_servers"], json!([issuer.name()]));
        assert_eq!(told["bearer_methods_supported"], json!(["header"]));
        assert_eq!(told["scopes_supported"], json!(["mcp", "tools"]));
    }
    let unnamed = door.modern("tools/list", json!({})).await;
    assert_eq!(unnamed.status, StatusCode::UNAUTHORIZED);
    let where_it_is = format!("resource_metadata=\"http://{name}/.well-known/oauth-protected-resource/mcp\"");
    assert!(challenge(&unnamed).contains(&where_it_is), "{}", challenge(&unnamed));
    assert!(!challenge(&unnamed).contains("error"), "who says nothing has made no mistake");

    let mut claims = issuer.claims(&door);
    claims["email"] = json!("ann@example.org");
    let poor = list(&door, &issuer.signer.sign(&claims)).await;
    assert_eq!(poor.status, StatusCode::FORBIDDEN, "{poor:?}");
    assert!(challenge(&poor).contains("error=\"insufficient_scope\""), "{}", challenge(&poor));
    assert!(challenge(&poor).contains("scope=\"mcp tools\""), "{}", challenge(&poor));
    for scopes in [("scope", json!("tools mcp")), ("scp", json!(["tools"]))] {
        claims[scopes.0] = scopes.1;
        assert_eq!(list(&door, &issuer.signer.sign(&claims)).await.status, StatusCode::OK, "{claims}");
    }
    assert_eq!(list(&door, "a-key-of-bob").await.status, StatusCode::OK, "keys count beside tokens");
    let plain = open_with(Host::builder().start().await.unwrap(), |b| b).await;
    let name = plain.name();
    let none = plain.send(Method::GET, "/.well-known/oauth-protected-resource", &[("host", &name)], "").await;
    assert_eq!(none.status, StatusCode::NOT_FOUND, "without tokens there is nothing to tell");
}

#[tokio::test]
async fn l92_what_a_caller_authenticates_with_never_reaches_a_server() {
    let issuer = Issuer::start();
    let server =
        HttpPuppet::start(honest_modern(vec![json!({"name": "t", "inputSchema": {"type": "object"}})]));
    let config = ServerConfig::http(ServerName::parse("far").unwrap(), &server.url()).unwrap();
    let door = behind(&issuer, Host::builder().server(config).start().await.unwrap()).await;
    let token = issuer.signer.sign(&issuer.claims(&door));
    let bearer = format!("Bearer {token}");
    let more = [("authorization", bearer.as_str()), ("cookie", "s=1"), ("x-api-key", "k")];
    let listed = door.modern_with("tools/list", json!({}), &more).await.json();
    let tool = listed["result"]["tools"][0]["name"].as_str().unwrap_or_else(|| panic!("{listed}")).to_owned();
    let called = door.modern_with("tools/call", json!({"name": tool, "arguments": {}}), &more).await;
    assert_eq!(called.status, StatusCode::OK, "{called:?}");
    let requests = server.requests();
    assert!(requests.iter().any(|asked| asked.rpc_method() == "tools/call"), "{requests:?}");
    for asked in &requests {
        for header in ["authorization", "cookie", "x-api-key"] {
            assert!(!asked.headers.contains_key(header), "{header}: {asked:?}");
        }
        let whole = format!("{:?} {}", asked.headers, String::from_utf8_lossy(&asked.body));
        assert!(!whole.contains(&token), "{whole}");
    }
    door.host.close().await;
}

#[tokio::test]
async fn gwy_04_an_issuer_must_be_one_that_can_be_believed() {
    let at = |text: &str| text.parse().unwrap();
    let gateway = async |issuer: &str, jwks: Option<&str>| {
        let mut settings = JwtSettings::new(Url::parse(issuer).unwrap(), issuer);
        settings.jwks_url = jwks.map(|url| Url::parse(url).unwrap());
        Gateway::builder(Host::builder().start().await.unwrap()).tokens(settings)
    };
    for (issuer, jwks) in [
        ("http://id.example.org", None),
        ("https://id.example.org", Some("http://id.example.org/keys")),
        ("https://10.0.0.1", None),
        ("https://169.254.169.254/latest", None),
    ] {
        let refused =
            gateway(issuer, jwks).await.build().unwrap().may_listen(at("127.0.0.1:80")).unwrap_err();
        assert_eq!(refused.kind(), "denied", "{issuer} {jwks:?}");
    }
    let good = gateway("https://id.example.org", None).await;
    let nowhere = good.build().unwrap().may_listen(at("0.0.0.0:80")).unwrap_err();
    assert!(nowhere.hint().is_some_and(|hint| hint.contains("url")), "{nowhere:?}");
    let named = gateway("https://id.example.org", None).await;
    named
        .url(Url::parse("https://tools.example.org/mcp").unwrap())
        .build()
        .unwrap()
        .may_listen(at("0.0.0.0:80"))
        .unwrap();
}
