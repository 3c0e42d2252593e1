//! The door that a browser comes back through, and what a person may paste instead.

use futures_util::future::join;
use url::Url;
use wharf::Error;
use wharf::connect::{Loopback, Page, Visiting, Visitor};
use wharf::secret::Secret;
use wharf_testkit::oauth::{self, Authority, Rules};

use super::{Person, call, guarded, honest, host, with};

/// Somebody with a real browser, in whose machine others knock first.
struct Browser {
    door: Loopback,
    strays: Vec<String>,
}

impl Visitor for Browser {
    fn returns_to(&self) -> Url {
        self.door.url()
    }

    fn visit<'a>(&'a self, page: &'a Page) -> Visiting<'a> {
        Box::pin(async move {
            let browsing = async {
                let back = oauth::consent(page.url().as_str()).await.unwrap();
                for stray in &self.strays {
                    let answer = oauth::fetch(&stray.replace("{door}", self.door.url().as_str())).await;
                    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
                }
                oauth::fetch(&back).await
            };
            let (answer, thanks) = join(self.door.wait(page), browsing).await;
            assert!(thanks.starts_with("HTTP/1.1 200"), "{thanks}");
            assert!(thanks.contains("no-store") && thanks.contains("default-src 'none'"), "{thanks}");
            answer
        })
    }
}

#[tokio::test]
async fn l81_a_browser_comes_back_through_a_port_and_strays_change_nothing() {
    let (authority, server) = honest();
    let host = host(&server).await;
    let strays =
        ["{door}", "{door}?code=stolen&state=guessed", "{door}?error=access_denied", "{door}/../mcp"];
    let browser =
        Browser { door: Loopback::open(None).await.unwrap(), strays: strays.map(str::to_owned).to_vec() };
    host.login("srv", &browser, &[]).await.unwrap();
    call(&host, "echo").await.unwrap();
    assert_eq!(authority.registrations()[0]["redirect_uris"][0], browser.door.url().as_str());
    assert!(browser.door.url().as_str().starts_with("http://127.0.0.1:"));
}

#[tokio::test]
async fn ssrf_13_a_door_is_not_opened_by_a_name_of_somebody_else() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    struct Rebound(Loopback);
    impl Visitor for Rebound {
        fn returns_to(&self) -> Url {
            self.0.url()
        }
        fn visit<'a>(&'a self, page: &'a Page) -> Visiting<'a> {
            Box::pin(async move {
                let back = oauth::consent(page.url().as_str()).await.unwrap();
                let (_, path) = back.split_once("/callback").unwrap();
                let knocking = async {
                    let place = format!("127.0.0.1:{}", self.0.url().port().unwrap());
                    let mut stream = tokio::net::TcpStream::connect(place).await.unwrap();
                    let request = format!("GET /callback{path} HTTP/1.1\r\nhost: evil.example\r\n\r\n");
                    stream.write_all(request.as_bytes()).await.unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).await.unwrap();
                    answer
                };
                tokio::select! {
                    _ = self.0.wait(page) => panic!("a stranger's name opened the door"),
                    answer = knocking => assert!(answer.starts_with("HTTP/1.1 404"), "{answer}"),
                }
                Err(Error::Internal("nobody came".into()))
            })
        }
    }
    let (_authority, server) = honest();
    let host = host(&server).await;
    let door = Rebound(Loopback::open(None).await.unwrap());
    assert!(host.login("srv", &door, &[]).await.is_err());
}

#[tokio::test]
async fn l81_what_a_person_pastes_is_an_address_a_query_or_a_code() {
    fn bare(back: String) -> String {
        let query = back.split_once("code=").unwrap().1;
        format!(" {}\n", query.split('&').next().unwrap())
    }
    let query: fn(String) -> String = |back| back.split_once('?').unwrap().1.to_owned();
    for twist in [query, |back| format!("  {back}\n")] {
        let (_authority, server) = honest();
        let host = host(&server).await;
        host.login("srv", &Person::who(twist), &[]).await.unwrap();
        call(&host, "echo").await.unwrap();
    }
    // A bare code says nothing of who sent it: only where nobody promised to say so.
    for promised in [true, false] {
        let metadata = with("authorization_response_iss_parameter_supported", promised.into());
        let authority = Authority::with(Rules { metadata, ..Rules::default() });
        let server = guarded(authority.guard());
        let host = host(&server).await;
        assert_eq!(host.login("srv", &Person::who(bare), &[]).await.is_err(), promised);
        assert_eq!(call(&host, "echo").await.is_err(), promised);
    }
    // And nothing else.
    for twist in [|_| String::new(), |_| "https://x/".to_owned(), |_| "two words".to_owned()]
        as [fn(String) -> String; 3]
    {
        let (_authority, server) = honest();
        let host = host(&server).await;
        assert!(host.login("srv", &Person::who(twist), &[]).await.is_err());
    }
    let _ = Secret::new("");
}
