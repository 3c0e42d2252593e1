//! The private parts of net: which addresses are dialled, which connections are kept.

mod asks;
mod pool;

use std::future::Future;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use url::Url;

use super::dial::Connector;
use super::tls::Tls;
use super::{NetError, NetOptions, Resolve};
use crate::config::{Origin, Remote};
use crate::names::ServerName;
use crate::policy::{ConnectPermit, Policy};
use crate::secret::SecretUrl;

/// Gives its answers one after the other, and the last one for ever.
struct Answers(Vec<Vec<&'static str>>, AtomicUsize);

impl Resolve for Answers {
    fn resolve<'a>(
        &'a self,
        _: &'a str,
    ) -> Pin<Box<dyn Future<Output = io::Result<Vec<IpAddr>>> + Send + 'a>> {
        let asked = self.1.fetch_add(1, Ordering::SeqCst);
        let answer = &self.0[asked.min(self.0.len() - 1)];
        let answer = answer.iter().map(|ip| ip.parse().unwrap()).collect();
        Box::pin(async move { Ok(answer) })
    }
}

fn permit(policy: &Policy, url: &str) -> ConnectPermit {
    let remote = Remote { url: SecretUrl::new(Url::parse(url).unwrap()), headers: Default::default() };
    policy.permit_connect(&ServerName::parse("srv").unwrap(), &remote, &Origin::Given).unwrap()
}

fn connector(policy: &Policy, url: &str, answers: Vec<Vec<&'static str>>) -> (Connector, Arc<Answers>) {
    let resolver = Arc::new(Answers(answers, AtomicUsize::new(0)));
    let options = NetOptions { resolver: resolver.clone(), ..NetOptions::default() };
    (Connector::new(&permit(policy, url), &options, Tls::new(&[]).unwrap()), resolver)
}

async fn dialled(policy: &Policy, host: &str, answers: Vec<&'static str>) -> Result<Vec<String>, NetError> {
    let (connector, _) = connector(policy, &format!("https://{host}/"), vec![answers]);
    let vetted = connector.vet(host, 443).await?;
    Ok(vetted.addresses().iter().map(|address| address.ip().to_string()).collect())
}

#[tokio::test]
async fn ssrf_05_of_mixed_answers_only_the_public_are_dialled() {
    let strict = Policy::strict();
    let mixed = vec!["10.0.0.1", "1.1.1.1", "127.0.0.1", "fd00::1", "::ffff:169.254.169.254", "2606:4700::1"];
    assert_eq!(dialled(&strict, "a.test", mixed.clone()).await.unwrap(), ["1.1.1.1", "2606:4700::1"]);
    let home = strict.with_private_networks(true);
    assert_eq!(
        dialled(&home, "a.test", mixed).await.unwrap(),
        ["10.0.0.1", "1.1.1.1", "fd00::1", "2606:4700::1"]
    );
    let error = dialled(&strict, "a.test", vec!["10.0.0.1", "127.0.0.1"]).await.unwrap_err();
    assert!(matches!(error, NetError::Refused { kind: "a private address", .. }), "{error}");
    let error = dialled(&strict, "a.test", Vec::new()).await.unwrap_err();
    assert!(matches!(error, NetError::Dns { .. }), "{error}");
}

#[tokio::test]
async fn ssrf_06_a_name_is_asked_for_once_and_the_answer_is_what_is_dialled() {
    let (connector, resolver) =
        connector(&Policy::strict(), "https://a.test/", vec![vec!["1.1.1.1"], vec!["127.0.0.1"]]);
    let vetted = connector.vet("a.test", 443).await.unwrap();
    assert_eq!(vetted.addresses(), ["1.1.1.1:443".parse().unwrap()]);
    assert_eq!(resolver.1.load(Ordering::SeqCst), 1);
    let error = connector.vet("a.test", 443).await.unwrap_err();
    assert!(
        matches!(error, NetError::Refused { kind: "a loopback address", .. }),
        "the next connection asks again: {error}"
    );
}

#[tokio::test]
async fn ssrf_04_a_name_of_this_machine_is_not_asked_for() {
    let (inside, resolver) = connector(&Policy::strict(), "http://a.localhost:1/", vec![vec!["1.1.1.1"]]);
    let vetted = inside.vet("a.localhost", 1).await.unwrap();
    assert!(vetted.addresses().iter().all(|address| address.ip().is_loopback()));
    assert_eq!(resolver.1.load(Ordering::SeqCst), 0);
    let (outside, _) = connector(&Policy::strict(), "https://a.test/", vec![vec!["1.1.1.1"]]);
    for host in
        ["localhost", "LOCALHOST", "localhost.", "a.localhost", "127.0.0.1", "::1", "::ffff:127.0.0.1"]
    {
        assert!(matches!(outside.vet(host, 1).await, Err(NetError::Refused { .. })), "{host}");
    }
}

#[tokio::test]
async fn ssrf_04_a_permit_for_this_machine_does_not_open_it_to_other_names() {
    let (inside, _) = connector(&Policy::strict(), "http://localhost:1/", vec![vec!["127.0.0.1"]]);
    assert!(inside.vet("localhost", 1).await.is_ok());
    assert!(matches!(inside.vet("a.test", 1).await, Err(NetError::Refused { .. })));
}

#[tokio::test]
async fn not_more_than_eight_addresses_are_tried() {
    let many = vec!["1.1.1.1"; 100];
    assert_eq!(dialled(&Policy::strict(), "a.test", many).await.unwrap().len(), 8);
}
