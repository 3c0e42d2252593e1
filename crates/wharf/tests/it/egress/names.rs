//! Which names are which: rules as they are written, and hosts as a server asks for them.

use wharf::names::ServerName;
use wharf::policy::{EgressRules, Target};

use super::{Page, Wall, status};

fn allows(rules: &[&str], authority: &str, port: u16) -> bool {
    let Ok(target) = Target::parse(authority, Some(port)) else { return false };
    let server = ServerName::parse("boat").unwrap();
    EgressRules::parse(rules).unwrap().permit(&server, &target).is_ok()
}

#[test]
fn sbx_05_a_rule_means_its_own_name_and_nothing_around_it() {
    let exact = ["api.example.com"];
    for same in ["api.example.com", "API.Example.COM", "api.example.com:443", "api.example.com:80"] {
        assert!(allows(&exact, same, 443), "{same}");
    }
    for other in [
        "example.com",
        "a.api.example.com",
        "api.example.com.evil",
        "evil-api.example.com",
        "api-example.com",
        "apiXexample.com",
        "api.example.co",
        "api.example.com:8443",
        "api.example.com:22",
    ] {
        assert!(!allows(&exact, other, 443), "{other}");
    }
}

#[test]
fn sbx_05_a_wildcard_means_what_is_below_a_name() {
    let below = ["*.example.com"];
    for same in ["a.example.com", "a.b.example.com", "A.EXAMPLE.com"] {
        assert!(allows(&below, same, 443), "{same}");
    }
    for other in ["example.com", "evilexample.com", "a.example.com.evil", ".example.com", "a.example.org"] {
        assert!(!allows(&below, other, 443), "{other}");
    }
}

#[test]
fn sbx_05_a_port_in_a_rule_is_the_only_one() {
    for (rule, right, wrong) in [
        ("example.com:8443", "example.com:8443", "example.com:443"),
        ("*.example.com:8443", "a.example.com:8443", "a.example.com:80"),
        ("example.com", "example.com:80", "example.com:8080"),
    ] {
        assert!(allows(&[rule], right, 443), "{rule} {right}");
        assert!(!allows(&[rule], wrong, 443), "{rule} {wrong}");
    }
}

#[test]
fn cfg_11_no_rule_means_nowhere() {
    let none = EgressRules::parse([""; 0]).unwrap();
    assert!(none.is_empty());
    assert_eq!(none, EgressRules::default());
    assert!(!allows(&[], "example.com", 443));
    assert!(allows(&["example.com"], "example.com", 443));
}

#[test]
fn sbx_05_names_of_other_alphabets_have_one_form() {
    let rules = ["bücher.example"];
    assert!(allows(&rules, "xn--bcher-kva.example", 443));
    assert!(allows(&["xn--bcher-kva.example"], "XN--BCHER-KVA.example", 443));
    assert!(allows(&["BÜCHER.example"], "xn--bcher-kva.example", 443));
    assert!(!allows(&rules, "bucher.example", 443));
    assert!(!allows(&rules, "bücher.example", 443), "a request has it in its other form");
}

#[test]
fn sbx_05_what_is_no_rule_is_an_error_that_names_it() {
    let bad = [
        "",
        "*",
        "*.",
        "*.com",
        "a*.example.com",
        "*example.com",
        "a.*.com",
        "*.*.com",
        "http://example.com",
        "example.com/x",
        "example.com.",
        "example.com:0",
        "example.com:99999",
        "example.com:",
        "example.com:+80",
        "user@example.com",
        "exa mple.com",
        "exam\0ple.com",
        "example..com",
        ".example.com",
        "exam%70le.com",
        "example.com#",
        "8.8.8.8",
        "8.8.8.8:53",
        "10.0.0.1:80",
        "0x08080808",
        "[2606:4700::1]:443",
        "localhost",
        "127.0.0.1",
        "[::1]",
        "*.localhost:80",
        "*.127.0.0.1:80",
        "169.254.169.254:80",
        "0.0.0.0:80",
        "[::]:80",
        "example.com。",
    ];
    for rule in bad {
        let error = EgressRules::parse([rule]).expect_err(rule);
        assert!(error.to_string().contains("is no rule for `domains`"), "{rule}: {error}");
        assert_eq!(error.kind(), "config");
    }
    let good = [
        "example.com",
        "*.example.com",
        "a_b.example.com:1",
        "intranet",
        "localhost:1",
        "127.0.0.1:1",
        "[::1]:1",
    ];
    assert!(EgressRules::parse(good).is_ok());
}

#[test]
fn ssrf_01_every_spelling_of_an_address_is_an_address() {
    let rules = ["*.example.com", "127.0.0.1:8080"];
    for spelling in ["127.0.0.1", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0x7f000001", "127.0.0.1."] {
        let same = Target::parse(spelling, Some(8080)).is_ok_and(|target| {
            assert_eq!((target.host(), target.is_address()), ("127.0.0.1", true), "{spelling}");
            true
        });
        assert_eq!(same, !spelling.ends_with('.'), "{spelling}");
        assert!(!allows(&rules, spelling, 80), "{spelling}");
    }
    for spelling in ["①②⑦.⓪.⓪.①", "127。0。0。1", "[::ffff:127.0.0.1]", "[fe80::1%25eth0]", "0", "999.1.1.1"]
    {
        assert!(!allows(&rules, spelling, 8080), "{spelling}");
    }
    assert!(allows(&rules, "127.0.0.1", 8080));
}

#[test]
fn l17_learning_is_open_to_public_names_only() {
    let (rules, server) = (EgressRules::everywhere(), ServerName::parse("boat").unwrap());
    let permit = |authority| rules.permit(&server, &Target::parse(authority, Some(443)).unwrap());
    assert_eq!(permit("example.com").unwrap().rule(), "*");
    for closed in ["localhost", "a.localhost", "127.0.0.1", "8.8.8.8", "[::1]"] {
        assert!(permit(closed).is_err(), "{closed}");
    }
}

#[tokio::test]
async fn sbx_05_tricks_with_names_reach_nobody() {
    let page = Page::open().await;
    let port = page.port;
    let wall = Wall::around(&[&page.localhost(), "allowed.example"]);
    let tricks = [
        format!("localhost.:{port}"),
        format!("localhost.evil:{port}"),
        format!("a.localhost:{port}"),
        format!("evil@localhost:{port}"),
        format!("localhost:{port}@evil.example"),
        format!("localhos%74:{port}"),
        format!("localhost%00.evil:{port}"),
        format!("localhost\\@evil:{port}"),
        format!("localhost\0.allowed.example:{port}"),
        format!("localhost\t:{port}"),
        format!("127.0.0.1:{port}"),
        format!("2130706433:{port}"),
        format!("0x7f.1:{port}"),
        format!("0177.0.0.1:{port}"),
        format!("127.1:{port}"),
        format!("0:{port}"),
        format!("[::1]:{port}"),
        format!("[::ffff:127.0.0.1]:{port}"),
        format!("localhost:{port}:{port}"),
        format!("localhost:0{port}00"),
        format!(":{port}"),
        "localhost:0".into(),
        "localhost:".into(),
        "allowed.example.evil".into(),
        "allowed.example.".into(),
        "evil\0.allowed.example".into(),
        "xallowed.example".into(),
        "".into(),
    ];
    for authority in &tricks {
        let (_, connect) = wall.tunnel(authority).await;
        assert!(matches!(status(&connect), 400 | 403), "CONNECT {authority:?}: {connect}");
        let get = wall.get(authority).await;
        assert!(matches!(status(&get), 400 | 403), "GET {authority:?}: {get}");
    }
    assert_eq!(page.accepted(), 0);
    for authority in [page.localhost(), format!("LOCALHOST:{port}")] {
        assert_eq!(status(&wall.tunnel(&authority).await.1), 200, "{authority}");
        assert_eq!(status(&wall.get(&authority).await), 200, "{authority}");
    }
}
