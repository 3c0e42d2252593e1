//! What a gateway is called by.

use url::Url;

use crate::Host;
use crate::gateway::{Gateway, guard};

#[tokio::test]
async fn gwy_02_a_gateway_has_its_own_names_and_no_others() {
    let names = async |url: Option<&str>, at: &str| {
        let host = Host::builder().start().await.unwrap();
        let mut builder = Gateway::builder(host).hosts(["tools.example.org".to_owned()]);
        if let Some(url) = url {
            builder = builder.url(Url::parse(url).unwrap());
        }
        guard::names(&builder.settings, Some(at.parse().unwrap()))
    };
    let cases = [
        (None, "192.168.1.5:7420", "192.168.1.5:7420", true),
        (None, "192.168.1.5:7420", "192.168.1.5", true),
        (None, "192.168.1.5:7420", "tools.example.org", true),
        (None, "192.168.1.5:7420", "127.0.0.1:7420", true),
        (None, "192.168.1.5:7420", "192.168.1.6:7420", false),
        (None, "192.168.1.5:7420", "192.168.1.5.evil.com", false),
        (None, "192.168.1.5:7420", "evil.com", false),
        (None, "[fd00::5]:7420", "[FD00:0:0::5]:7420", true),
        (None, "[fd00::5]:7420", "[fd00::6]:7420", false),
        (None, "0.0.0.0:7420", "0.0.0.0:7420", false),
        (None, "0.0.0.0:7420", "192.168.1.5:7420", false),
        (None, "[::]:7420", "[fd00::5]", false),
        (Some("https://far.example.org/mcp"), "0.0.0.0:7420", "far.example.org", true),
        (Some("https://far.example.org/mcp"), "0.0.0.0:7420", "FAR.example.org:443", true),
        (Some("https://far.example.org/mcp"), "0.0.0.0:7420", "a.far.example.org", false),
        (Some("https://[fd00::5]/mcp"), "[::]:7420", "[fd00::5]", true),
    ];
    for (url, at, host, is_ours) in cases {
        assert_eq!(guard::is_ours(host, &names(url, at).await), is_ours, "{url:?} {at} {host}");
    }
}
