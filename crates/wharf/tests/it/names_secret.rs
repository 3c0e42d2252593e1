//! Names, secrets and foreign text: what they accept, and what they never show.

use proptest::prelude::*;
use url::Url;
use wharf::names::{CallerName, SERVER_NAME_MAX, ServerName, TOOL_NAME_MAX, ToolName};
use wharf::secret::{Redactor, Secret, SecretUrl, is_credential_name, is_credential_value};
use wharf::text::{Escaped, EscapedLines, Foreign, is_unsafe_to_show};

// --- names ---

#[test]
fn a_server_name_is_lowered_and_must_fit() {
    let parse = |text: &str| ServerName::parse(text).map(|name| name.as_str().to_owned()).ok();
    assert_eq!(parse(" GitHub "), Some("github".into()));
    assert_eq!(parse("my server"), Some("my_server".into()));
    assert_eq!(parse("a-b_9"), Some("a-b_9".into()));
    for bad in ["", " ", "9lives", "_x", "-x", "é", "a\u{212a}b", "a\nb", "a\0", "a:b", "日本"] {
        assert_eq!(parse(bad), None, "{bad:?}");
    }
    for (length, fits) in [(SERVER_NAME_MAX - 1, true), (SERVER_NAME_MAX, true), (SERVER_NAME_MAX + 1, false)]
    {
        assert_eq!(parse(&"a".repeat(length)).is_some(), fits);
    }
    let complaint = ServerName::parse(&"\u{202e}".repeat(10_000)).unwrap_err().to_string();
    assert!(complaint.len() < 400 && !complaint.chars().any(is_unsafe_to_show), "{complaint}");
}

#[test]
fn a_tool_name_is_kept_byte_for_byte_and_shown_safely() {
    for good in ["echo", "a.b/c", "日本", " spaced ", "Ünï", "a\u{202e}b\u{3164}"] {
        let name = ToolName::parse(good).unwrap();
        assert_eq!(name.as_str(), good);
        assert!(!format!("{name}{name:?}").chars().any(is_unsafe_to_show), "{name:?}");
    }
    assert_eq!(ToolName::parse("日本").unwrap().to_string(), "日本");
    for bad in ["", "a\nb", "\u{1b}[2J", "\u{85}", "\0"] {
        let complaint = ToolName::parse(bad).unwrap_err().to_string();
        assert!(!complaint.chars().any(is_unsafe_to_show), "{complaint:?}");
    }
    for (length, fits) in [(TOOL_NAME_MAX - 1, true), (TOOL_NAME_MAX, true), (TOOL_NAME_MAX + 1, false)] {
        assert_eq!(ToolName::parse(&"a".repeat(length)).is_ok(), fits);
    }
    assert_eq!(CallerName::local().as_str(), "local");
}

// --- text ---

#[test]
fn legitimate_text_is_shown_as_it_is() {
    for text in [
        "plain ASCII ~",
        "é ñ ß",
        "日本語",
        "עברית",
        "العربية",
        "हिन्दी",
        "😀 ❤\u{fe0f} 🇫🇷",
        "a\u{a0}b",
        "ö = o\u{308}",
    ] {
        assert_eq!(Escaped(text).to_string(), text);
        assert_eq!(EscapedLines(text).to_string(), text);
        assert_eq!(Foreign::from(text).to_string(), text);
        assert_eq!(Foreign::from(text).raw(), text);
    }
}

#[test]
fn text_that_tricks_the_eye_is_shown_as_escapes() {
    for (text, shown) in [
        ("\u{1b}[31mred", "\\u{1b}[31mred"),
        ("a\r\nb\tc", "a\\r\\nb c"),
        ("user\u{202e}txt.exe", "user\\u{202e}txt.exe"),
        ("pay\u{200b}pal", "pay\\u{200b}pal"),
        ("\u{e0041}\u{e007f}", "\\u{e0041}\\u{e007f}"),
        ("a\u{9b}b\u{7f}", "a\\u{9b}b\\u{7f}"),
        ("\u{3164}\u{115f}\u{34f}\u{fe01}", "\\u{3164}\\u{115f}\\u{34f}\\u{fe01}"),
    ] {
        assert_eq!(Escaped(text).to_string(), shown);
        assert_eq!(format!("{:?}", Foreign::from(text)), format!("\"{shown}\""));
    }
    assert_eq!(EscapedLines("a\n\tb\r\u{1b}").to_string(), "a\n\tb\\r\\u{1b}");
}

// --- secrets ---

/// Fails to compile if a type has a trait: with the trait, two implementations fit and the name is ambiguous.
macro_rules! assert_not_implemented {
    ($type:ty: $($bound:tt)+) => {
        const _: fn() = || {
            struct Blanket;
            trait Ambiguous<A> {
                fn here() {}
            }
            impl<T: ?Sized> Ambiguous<()> for T {}
            impl<T: ?Sized + $($bound)+> Ambiguous<Blanket> for T {}
            let _ = <$type as Ambiguous<_>>::here;
        };
    };
}
assert_not_implemented!(Secret: std::fmt::Display);
assert_not_implemented!(Secret: serde::Serialize);
assert_not_implemented!(Secret: std::ops::Deref);
assert_not_implemented!(Secret: AsRef<str>);
assert_not_implemented!(SecretUrl: serde::Serialize);
assert_not_implemented!(Redactor: serde::Serialize);

#[test]
fn a_secret_never_prints_itself() {
    let secret = Secret::new("hunter2hunter2");
    let all = (secret.clone(), Some(secret.clone()), vec![secret.clone()], Redactor::new([secret.clone()]));
    let printed = format!("{all:?} {all:#?}");
    assert!(!printed.contains("hunter2") && printed.contains("***"), "{printed}");
    assert_eq!(secret.expose(), "hunter2hunter2");
}

#[test]
fn an_address_shows_itself_without_its_secrets() {
    let url = |text: &str| SecretUrl::new(Url::parse(text).unwrap());
    let secret = url("https://me:p%40ss-word@mcp.example:8443/v1/mcp?key=top%2Fsecret&x=1#frag");
    assert_eq!(
        format!("{secret} {secret:?}"),
        "https://mcp.example:8443/v1/mcp?*** https://mcp.example:8443/v1/mcp?***"
    );
    assert_eq!(url("https://mcp.example/mcp").to_string(), "https://mcp.example/mcp");
    let redactor = Redactor::new(secret.secrets());
    for leak in ["p@ss-word", "p%40ss-word", "top/secret", "top%2Fsecret"] {
        assert_eq!(redactor.redact(&format!("<{leak}>")), "<***>");
    }
    assert_eq!(redactor.redact("me at mcp.example, x=1"), "me at mcp.example, x=1");
    let token = url("https://ghp_0123456789@git.example/");
    assert_eq!(Redactor::new(token.secrets()).redact("ghp_0123456789"), "***");
}

#[test]
fn the_redactor_erases_every_form_of_a_secret_and_nothing_else() {
    let redactor = |values: &[&str]| Redactor::new(values.iter().map(|v| Secret::new(*v)));
    let known = redactor(&[
        "Bearer tok-123456",
        "line one is long\nline two is long",
        "quo\"te\\slash",
        " padded-value\n",
        "on",
    ]);
    for (text, shown) in [
        ("Authorization: Bearer tok-123456!", "Authorization: ***!"),
        ("token tok-123456 is wrong", "token *** is wrong"),
        ("stderr: line two is long", "stderr: ***"),
        (r#"{"k":"quo\"te\\slash"}"#, r#"{"k":"***"}"#),
        ("?k=quo%22te%5Cslash", "?k=***"),
        ("padded-value", "***"),
        ("tok-123456tok-123456", "******"),
        ("turn it on", "turn it on"),
        ("nothing here", "nothing here"),
    ] {
        assert_eq!(known.redact(text), shown);
    }
    assert!(matches!(known.redact("nothing here"), std::borrow::Cow::Borrowed(_)));
    assert_eq!(
        redactor(&["abcdef", "abcdefghi"]).redact("abcdefghi"),
        "***",
        "a secret inside another leaves no rest"
    );
    assert_eq!(
        redactor(&["abcdef", "defghi"]).redact("<abcdefghi>"),
        "<***>",
        "nor does one that overlaps it"
    );
    assert_eq!(redactor(&["aaaaaa"]).redact("<aaaaaaaa>"), "<***>", "nor one that overlaps itself");
    assert_eq!(redactor(&["ééééééé"]).redact("éééééééé"), "***");
    assert_eq!(Redactor::default().redact("abcdef"), "abcdef");
}

#[test]
fn credentials_are_known_by_name_and_by_shape() {
    for name in [
        "GITHUB_TOKEN",
        "api-key",
        "X-Api-Key",
        "DB_PASSWORD",
        "Authorization",
        "GH_PAT",
        "Cookie",
        "clientSecret",
    ] {
        assert!(is_credential_name(name), "{name}");
    }
    for name in ["PATH", "HOME", "LANG", "NODE_ENV", "AUTHOR", "KEYBOARD", "MCP_DEBUG"] {
        assert!(!is_credential_name(name), "{name}");
    }
    for value in [
        "ghp_0123456789abcdef",
        "AKIA0123456789ABCDEF",
        "eyJhbGciOi.eyJzdWIiOi.c2lnbmF0dXJl",
        "Bearer 0123456789",
    ] {
        assert!(is_credential_value(value), "{value}");
    }
    for value in ["", "sk-", "/usr/local/bin:/usr/bin", "eyJ.a.b", "en_US.UTF-8"] {
        assert!(!is_credential_value(value), "{value}");
    }
}

proptest! {
    #[test]
    fn nothing_unsafe_is_ever_shown(text in prop_oneof![".*", "[\\p{C}\\p{Z}a\u{200b}-\u{200f}\u{202a}-\u{202e}\u{e0000}-\u{e0fff}\r\n\t]{0,40}"]) {
        let shown = Escaped(&text).to_string();
        prop_assert!(!shown.chars().any(is_unsafe_to_show));
        let lines = EscapedLines(&text).to_string();
        prop_assert!(!lines.chars().any(|c| is_unsafe_to_show(c) && c != '\n' && c != '\t'));
        let legit: String = text.chars().filter(|c| !is_unsafe_to_show(*c)).collect();
        prop_assert_eq!(Escaped(&legit).to_string(), legit);
    }

    #[test]
    fn no_secret_survives_the_redactor(before in ".{0,20}", secret in "[!-~]{6,20}", after in ".{0,20}") {
        let redactor = Redactor::new([Secret::new(secret.clone())]);
        let text = format!("{before}{secret}{after}");
        prop_assert!(!redactor.redact(&text).contains(&secret) || secret.contains('*'));
    }
}
