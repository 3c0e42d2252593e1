//! In: addresses that a server led us to. Out: what is answered there. Every one of them is judged before it is reached,
//! redirects stay within their origin, and no answer is longer or slower than it may be.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use url::Url;

use crate::error::{Error, Result};
use crate::names::ServerName;
use crate::net::{HttpClient, read_body};
use crate::policy::{Live, Policy};
use crate::secret::{Redactor, Secret};
use crate::text::Escaped;
use crate::wire::Json;

/// Who goes there, for which server, and by which rules.
#[derive(Clone, Debug)]
pub(super) struct Errand {
    pub(super) server: ServerName,
    /// The server's own address.
    pub(super) home: Url,
    pub(super) policy: Live<Policy>,
    pub(super) net: HttpClient,
}

/// What was answered.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    body: Bytes,
}

/// How long an answer may take, and how long it may be.
const ANSWER: Duration = Duration::from_secs(20);
const LARGEST: usize = 256 * 1024;
const DEPTH: usize = 16;
/// How much of a foreign explanation is shown.
const SHOWN: usize = 300;

impl Errand {
    /// An address that somebody else wrote.
    pub(super) fn address(&self, what: &str, text: &str) -> Result<Url> {
        Url::parse(text).map_err(|_| {
            self.failed(format!("{what} is not an address: `{}`", Escaped(crate::text::beginning(text, 200))))
        })
    }

    /// Whether an address may be reached. Nobody is contacted.
    pub(super) fn check(&self, url: &Url) -> Result<()> {
        self.policy.now().permit_found(&self.server, &self.home, url).map(drop)
    }

    pub(super) async fn get(&self, url: &Url) -> Result<Answer> {
        self.send(Method::GET, url, HeaderMap::new(), Bytes::new()).await
    }

    pub(super) async fn post_json(&self, url: &Url, body: &Json) -> Result<Answer> {
        let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
        self.send(Method::POST, url, headers, body.bytes().clone()).await
    }

    /// Posts a form, with what proves who posts it.
    pub(super) async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        basic: Option<&Secret>,
    ) -> Result<Answer> {
        let body = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(form).finish();
        let form = HeaderValue::from_static("application/x-www-form-urlencoded");
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, form)]);
        if let Some(basic) = basic {
            let value = HeaderValue::from_str(basic.expose());
            let mut value = value.map_err(|_| self.failed("the client's secret cannot be sent".into()))?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        self.send(Method::POST, url, headers, body.into()).await
    }

    /// Asks the server itself, without any credential.
    pub(super) async fn ask_home(&self, request: Request<Full<Bytes>>) -> Result<Answer> {
        let url = self.home.clone();
        self.exchange(&url, request).await
    }

    async fn send(&self, method: Method, url: &Url, headers: HeaderMap, body: Bytes) -> Result<Answer> {
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.headers_mut() = headers;
        request.headers_mut().insert(ACCEPT, HeaderValue::from_static("application/json"));
        self.exchange(url, request).await
    }

    async fn exchange(&self, url: &Url, mut request: Request<Full<Bytes>>) -> Result<Answer> {
        let permit = self.policy.now().permit_found(&self.server, &self.home, url)?;
        let endpoint = self.net.for_permit(&permit);
        *request.uri_mut() = permit
            .url()
            .expose()
            .as_str()
            .parse()
            .map_err(|_| self.failed("an address it leads to cannot be requested".into()))?;
        let answering = async {
            let response = endpoint.send(request).await?;
            let (head, body) = response.into_parts();
            Ok((head, read_body(body, LARGEST).await?))
        };
        let place = || format!("{}", permit.url());
        let (head, body) = match tokio::time::timeout(ANSWER, answering).await {
            Ok(Ok(answered)) => answered,
            Ok(Err(error @ crate::net::NetError::TooLarge { .. })) => {
                return Err(self.failed(format!("{}: {error}", place())));
            }
            Ok(Err(error)) => return Err(error.into_error(&self.server, "http")),
            Err(_) => return Err(self.unreached(format!("{} does not answer within {ANSWER:?}", place()))),
        };
        Ok(Answer { status: head.status, headers: head.headers, body })
    }

    /// The login cannot go on.
    pub(super) fn failed(&self, reason: String) -> Error {
        Error::Login { server: self.server.clone(), reason, hint: None }
    }

    /// The same, with the next step.
    pub(super) fn failed_but(&self, reason: String, hint: impl Into<String>) -> Error {
        Error::Login { server: self.server.clone(), reason, hint: Some(hint.into()) }
    }

    fn unreached(&self, reason: String) -> Error {
        let stderr = crate::error::StderrTail::default();
        Error::Connection { server: self.server.clone(), transport: "http", reason, stderr, retryable: true }
    }
}

impl Answer {
    pub(super) fn json(&self) -> Result<Json, String> {
        Json::parse_strict(self.body.clone(), DEPTH).map_err(|error| error.to_string())
    }

    /// The OAuth error in it, and all of it as it can be shown.
    pub(super) fn trouble(&self, redactor: &Redactor) -> (Option<String>, String) {
        let parts = self.json().map(|json| json.pick(["error", "error_description"]));
        let [error, description] =
            parts.unwrap_or_default().map(|part| part.and_then(|part| part.to::<String>().ok()));
        let show = |text: &str| Escaped(&redactor.redact_beginning(text, SHOWN)).to_string();
        let mut said = format!("HTTP status {}", self.status.as_u16());
        for part in [&error, &description].into_iter().flatten() {
            said = format!("{said}, {}", show(part));
        }
        (error, said)
    }
}
