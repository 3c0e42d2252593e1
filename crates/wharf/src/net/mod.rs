//! stub
use crate::policy::ConnectPermit;
use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_util::client::legacy::{Client, connect::HttpConnector};
use std::sync::Arc;
#[derive(Clone, Debug)]
pub struct HttpClient(Client<HttpConnector, Full<Bytes>>);
#[derive(Clone, Debug)]
pub struct Endpoint(Client<HttpConnector, Full<Bytes>>, Arc<ConnectPermit>);
#[derive(Debug, thiserror::Error)]
#[error("{text}")]
pub struct NetError {
    text: String,
    before: bool,
}
impl HttpClient {
    pub fn stub() -> Self {
        Self(Client::builder(hyper_util::rt::TokioExecutor::new()).build_http())
    }
    pub fn endpoint(&self, permit: &ConnectPermit) -> Result<Endpoint, NetError> {
        Ok(Endpoint(self.0.clone(), Arc::new(permit.clone())))
    }
}
impl Endpoint {
    pub async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, NetError> {
        self.0.request(request).await.map_err(|e| NetError {
            before: e.is_connect(),
            text: format!("{e:?}"),
        })
    }
}
impl NetError {
    pub fn is_too_large(&self) -> bool {
        self.text.contains("limit")
    }
    pub fn is_before_send(&self) -> bool {
        self.before
    }
}
pub async fn read_body(incoming: Incoming, max: usize) -> Result<Bytes, NetError> {
    Limited::new(incoming, max)
        .collect()
        .await
        .map(|c| c.to_bytes())
        .map_err(|e| NetError {
            text: e.to_string(),
            before: false,
        })
}
