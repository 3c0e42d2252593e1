//! The inventory as text, with servers that would like to write more than their words.

use std::sync::Arc;

use proptest::prelude::*;
use pulldown_cmark::{Event, Options, Parser, Tag};
use serde_json::{Value, json};
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::registry::{Route, Source};
use wharf::render::{self, DESCRIPTION_MAX, Template};

fn route(server: &str, tool: &str, description: &str) -> Route {
    let description = if description.is_empty() { Value::Null } else { json!(description) };
    let definition = json!({"name": tool, "title": "A <b>title</b>", "description": description, "inputSchema": {"type": "object"}});
    let tool = Tool::read(definition.into()).unwrap();
    let public =
        format!("{server}_{}", tool.name.as_str().replace(|c: char| !c.is_ascii_alphanumeric(), "_"));
    Route {
        public: public.into(),
        server: ServerName::parse(server).unwrap(),
        tool: Arc::new(tool),
        owner: None,
        source: Source::Mcp,
        tally: Default::default(),
    }
}

/// As in the design that the promise comes from.
fn seed() -> Vec<Route> {
    vec![
        route("github", "create_issue", "Create a new issue in a repository"),
        route("github", "list_issues", "List issues with optional filters"),
        route("filesystem", "read_file", "Read contents of a file"),
        route("filesystem", "mute", ""),
    ]
}

#[test]
fn l64_the_inventory_is_grouped_by_server() {
    let expected = "\
## MCP Integrations

The following external tools are available via MCP:

### github

- `github_create_issue` - Create a new issue in a repository
- `github_list_issues` - List issues with optional filters

### filesystem

- `filesystem_read_file` - Read contents of a file
- `filesystem_mute`
";
    assert_eq!(render::markdown(&seed()), expected);
    assert!(render::markdown(&[]).contains("No external tools"));
}

#[test]
fn l64_a_template_knows_servers_and_tools() {
    let template = Template::parse(
        "Available servers: ${server_names}\nTotal tools: ${tool_count}\n\
         {% for server, tools in tools_by_server|items %}\n\
         [${server}]\n\
         {% for tool in tools %}\n\
         ${tool.name} = ${tool.tool}: ${tool.description or 'nothing said'} (${tool.title})\n\
         {% endfor %}\n\
         {% endfor %}\n",
    )
    .unwrap();
    let expected = "Available servers: github, filesystem\nTotal tools: 4\n[github]\n\
        github_create_issue = create_issue: Create a new issue in a repository (A \\<b\\>title\\</b\\>)\n\
        github_list_issues = list_issues: List issues with optional filters (A \\<b\\>title\\</b\\>)\n\
        [filesystem]\n\
        filesystem_read_file = read_file: Read contents of a file (A \\<b\\>title\\</b\\>)\n\
        filesystem_mute = mute: nothing said (A \\<b\\>title\\</b\\>)\n";
    assert_eq!(template.render(&seed()).unwrap(), expected);
}

#[test]
fn l64_a_mistake_in_a_template_names_its_line() {
    let cases = [
        ("a\nb ${tool_cuont}", "line 2 of the template", "`tool_cuont`"),
        ("a\n{% for x in tools_by_server %}\n", "the template: ", "syntax"),
        ("a\n\n${tool_count", "line 3 of the template", "syntax"),
        ("{% include 'x' %}", "line 1 of the template", "include"),
        ("{% if false %}${nobody}{% endif %}", "line 1 of the template", "`nobody`"),
    ];
    for (text, place, what) in cases {
        let error = Template::parse(text).unwrap_err();
        let said = error.to_string();
        assert!(said.contains(place) && said.contains(what), "{text}: {said}");
        assert_eq!(error.kind(), "config");
    }
    let attribute = "{% for server, tools in tools_by_server|items %}\n${tools[0].nmae}\n{% endfor %}";
    let error = Template::parse(attribute).unwrap().render(&seed()).unwrap_err().to_string();
    assert!(error.contains("line 2 of the template"), "{error}");
}

#[test]
fn l64_a_template_comes_to_an_end() {
    let nested = "{% for a in range(5000) %}{% for b in range(5000) %}${a}{% endfor %}{% endfor %}";
    let error = Template::parse(nested).unwrap().render(&[]).unwrap_err().to_string();
    assert!(error.contains("does not come to an end"), "{error}");
    let fair = "{% for server, tools in tools_by_server|items %}{% for t in tools %}${t.name}${t.description}\n{% endfor %}{% endfor %}";
    let many: Vec<Route> = (0..2000).map(|n| route("many", &format!("t{n}"), "words")).collect();
    assert_eq!(Template::parse(fair).unwrap().render(&many).unwrap().lines().count(), 2000);
}

#[test]
fn l64_a_description_is_cut_at_200_characters() {
    let text = |length: usize| render::markdown(&[route("s", "t", &"ä".repeat(length))]);
    for length in [DESCRIPTION_MAX - 1, DESCRIPTION_MAX] {
        assert!(text(length).ends_with(&format!(" - {}\n", "ä".repeat(length))), "{length}");
    }
    assert!(text(DESCRIPTION_MAX + 1).ends_with(&format!(" - {}…\n", "ä".repeat(DESCRIPTION_MAX - 1))));
    // What is escaped counts as what it was.
    let stars = render::markdown(&[route("s", "t", &"*".repeat(DESCRIPTION_MAX))]);
    assert!(stars.ends_with(&format!(" - {}\n", "\\*".repeat(DESCRIPTION_MAX))));
}

#[test]
fn l64_words_from_a_server_stay_words() {
    let cases = [
        ("# Heading", "\\# Heading"),
        ("fine\n\n## Forged\n- `rm` - all", "fine ## Forged - \\`rm\\` - all"),
        ("[click](https://evil.example)", "\\[click\\](https:\\//evil.example)"),
        ("![x](y)", "\\!\\[x\\](y)"),
        ("<script>alert(1)</script>", "\\<script\\>alert(1)\\</script\\>"),
        ("&lt;b&gt;", "\\&lt;b\\&gt;"),
        ("```\ncode\n```", "\\`\\`\\` code \\`\\`\\`"),
        ("~~~", "\\~\\~\\~"),
        ("**bold** _em_", "\\*\\*bold\\*\\* \\_em\\_"),
        ("- item", "\\- item"),
        ("12. item", "12\\. item"),
        ("1) item", "1\\) item"),
        ("=====", "\\====="),
        ("a | b", "a \\| b"),
        ("back\\", "back\\\\"),
        ("see www.evil.example, me@evil.example", "see www\\.evil.example, me\\@evil.example"),
        ("\u{1b}[31mred\u{202e}\u{200b}\u{e0041}", "\\\\u{1b}\\[31mred\\\\u{202e}\\\\u{200b}\\\\u{e0041}"),
        ("a\u{2028}# b", "a # b"),
    ];
    for (words, expected) in cases {
        assert_eq!(
            render::markdown(&[route("s", "t", words)]).lines().last().unwrap(),
            format!("- `s_t` - {expected}")
        );
        let template =
            Template::parse("{% for s in tools_by_server %}${tools_by_server[s][0].description}{% endfor %}")
                .unwrap();
        assert_eq!(template.render(&[route("s", "t", words)]).unwrap(), expected);
    }
    // The twin: plain words are left alone.
    for plain in [
        "Reads a file (UTF-8), e.g. read_file: 3.5 MB max!",
        "Größe in µm; costs 5 % more, a/b + c = d",
        "v1.2",
    ] {
        assert_eq!(render::escaped(plain), plain);
    }
}

#[test]
fn l64_values_are_not_read_as_a_template() {
    let template =
        Template::parse("{% for s in tools_by_server %}${tools_by_server[s][0].description}{% endfor %}")
            .unwrap();
    let text = template.render(&[route("s", "t", "${tool_count} {% raw %} {# x #}")]).unwrap();
    assert_eq!(text, "\\${tool_count} {% raw %} {# x #}");
}

/// What an independent reader of Markdown makes of a text, beside plain words and the list around them.
fn constructs(markdown: &str) -> Vec<String> {
    let is_word = |event: &Event<'_>| match event {
        Event::Text(_) => true,
        Event::Start(tag) => matches!(tag, Tag::Paragraph | Tag::List(_) | Tag::Item),
        Event::End(_) => true,
        _ => false,
    };
    let events = Parser::new_ext(markdown, Options::all()).filter(|event| !is_word(event));
    events.map(|event| format!("{event:?}")).collect()
}

/// Pieces that Markdown is made of.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("a"),
        Just(" "),
        Just("\n"),
        Just("#"),
        Just("-"),
        Just("="),
        Just("+"),
        Just("*"),
        Just("_"),
        Just("`"),
        Just("~"),
        Just("["),
        Just("]"),
        Just("("),
        Just(")"),
        Just("<"),
        Just(">"),
        Just("&lt;"),
        Just("!"),
        Just("|"),
        Just("\\"),
        Just("1"),
        Just("."),
        Just(":"),
        Just("$"),
        Just("^"),
        Just("{"),
        Just("}"),
        Just("\t"),
        Just("[^1]"),
        Just("<b>"),
        Just("<http://a.b>"),
        Just("\u{2028}"),
        Just("[x]: y"),
        Just("---"),
        Just("%"),
    ];
    proptest::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn l64_no_words_are_read_as_markdown(words in pieces()) {
        let escaped = render::escaped(&words);
        prop_assert!(!escaped.contains('\n'));
        // In the list, and at the beginning of a line, where a template may put it.
        for text in [format!("- x {escaped}\n"), format!("{escaped}\n"), format!("words\n{escaped}\nwords\n")] {
            let found: Vec<String> = constructs(&text).into_iter().filter(|c| c != "SoftBreak").collect();
            prop_assert!(found.is_empty(), "{text:?}: {found:?}");
        }
    }
}

#[test]
fn l64_the_reader_of_markdown_finds_what_is_not_escaped() {
    for forged in ["# a", "`a`", "[a](b)", "<b>", "*a*", "~~~\na\n~~~", "---", "![a](b)"] {
        assert!(!constructs(&format!("{forged}\n")).is_empty(), "{forged}");
    }
}
