//! The whole way: a confined server, the port inside of its sandbox, our proxy, a host on loopback. With every engine, as every
//! user.

use serde_json::json;

use super::Page;
use crate::sandbox::everywhere;

#[tokio::test(flavor = "multi_thread")]
async fn sbx_05_a_confined_server_reaches_what_its_profile_names_and_nothing_else() {
    let (page, other) = (Page::open().await, Page::open().await);
    let (here, there) = (page.localhost(), other.localhost());
    let get = |host: &str| {
        format!("import urllib.request; out = urllib.request.urlopen('http://{host}/x', timeout=20).read()")
    };
    let past_us = format!(
        "import urllib.request as u; u.build_opener(u.ProxyHandler({{}})).open('http://{here}/x', timeout=20)"
    );
    let tunnel = |host: &str| {
        format!(
            "import http.client, os; c = http.client.HTTPConnection(os.environ['http_proxy'].split('//')[1]); \
             c.set_tunnel('{host}'); c.request('GET', '/'); out = c.getresponse().read()"
        )
    };
    tokio::task::block_in_place(|| {
        everywhere(|prison| {
            let profile = json!({ "domains": [here] });
            let before = page.accepted();
            let told = prison.run(profile.clone(), &[&get(&here), &tunnel(&here)]);
            assert_eq!(told.works().steps, ["ok: b'tide'", "ok: b'tide'"]);
            assert_eq!(page.accepted(), before + 2);
            let refused = [get(&there), get("example.com"), tunnel(&there), tunnel("example.com:443")];
            let refused: Vec<&str> = refused.iter().map(String::as_str).collect();
            prison.run(profile.clone(), &refused).fails(&["403"]);
            // The machine's own ports are not there, whoever is asked.
            prison.run(profile, &[&past_us]).fails(&["refused"]);
            prison.run(json!(true), &[&get(&here)]).fails(&["refused"]);
            assert_eq!((page.accepted(), other.accepted()), (before + 2, 0));
        });
    });
}
