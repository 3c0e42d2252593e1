//! Lines as they are typed, and what they mean.

use super::{Arguments, Command, Connect, Consent, Visibility, arguments, last_word, parse};

fn call(rest: &str) -> Arguments {
    arguments(rest).unwrap()
}

#[test]
fn l101_commands_are_read() {
    let connect =
        |consent, visibility| Command::Connect(Connect { server: "demo".to_owned(), consent, visibility });
    let cases = [
        ("", Command::Nothing),
        ("  # a remark", Command::Nothing),
        ("/help", Command::Help),
        (" /quit ", Command::Quit),
        ("/mcp", Command::Servers),
        ("/mcp tools", Command::Tools(None)),
        ("/mcp tools demo", Command::Tools(Some("demo".to_owned()))),
        ("/mcp disconnect demo", Command::Disconnect("demo".to_owned())),
        ("/mcp connect demo", connect(Consent::AtFirstUse, Visibility::Private)),
        ("/mcp connect --allow-all demo", connect(Consent::Never, Visibility::Private)),
        ("/mcp connect demo --per-tool --shared", connect(Consent::ToolByTool, Visibility::Shared)),
        ("demo.add a=1  b=2", Command::Call("demo.add".to_owned(), "a=1  b=2".to_owned())),
    ];
    for (line, wanted) in cases {
        assert_eq!(parse(line).unwrap(), wanted, "{line}");
    }
}

#[test]
fn l101_what_makes_no_sense_is_refused_with_a_hint() {
    let cases = [
        ("/hepl", "did you mean `/help`?"),
        ("/mcp disconect demo", "did you mean `disconnect`?"),
        ("/mcp connect demo --alow-all", "did you mean `--allow-all`?"),
        ("/mcp connect", "write `/mcp connect NAME`; `/mcp` lists them"),
    ];
    for (line, hint) in cases {
        assert_eq!(parse(line).unwrap_err().next_step().as_deref(), Some(hint), "{line}");
    }
    for line in ["/mcp connect a b", "/mcp connect a --shared --private", "/help me", "/mcp tools a b"] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert!(arguments("a='b").is_err());
}

#[test]
fn l101_words_are_those_of_a_shell_and_json_needs_no_quotes() {
    let cases: [(&str, &[&str]); 8] = [
        ("a=1 b=2", &["a=1", "b=2"]),
        ("a='one two' b=\"three four\"", &["a=one two", "b=three four"]),
        ("a=\"say \\\"hi\\\"\" b=x\\ y", &["a=say \"hi\"", "b=x y"]),
        ("a:=[1, 2] b:={\"c\": \"d e\"}", &["a:=[1, 2]", "b:={\"c\": \"d e\"}"]),
        ("a:='[1, 2]'", &["a:=[1, 2]"]),
        ("a:=\"x y\"", &["a:=\"x y\""]),
        ("a:=[1, 2", &["a:=[1,", "2"]),
        ("a='' b=é", &["a=", "b=é"]),
    ];
    for (text, wanted) in cases {
        assert_eq!(call(text).words, wanted, "{text}");
    }
}

#[test]
fn l101_an_object_may_stand_before_the_words() {
    let both = call("{\"a\": \"b }\"} c=1");
    assert_eq!((both.whole.as_deref(), &both.words[..]), (Some("{\"a\": \"b }\"}"), &["c=1".to_owned()][..]));
    // What is wrong with it is said by whoever reads it.
    assert_eq!(call("{\"a\": 1 c=1").whole.as_deref(), Some("{\"a\": 1 c=1"));
}

#[test]
fn l101_the_last_word_may_be_quoted() {
    for (text, wanted) in [("", 0), ("ab", 0), ("ab ", 3), ("ab cd", 3), ("ab c='d e", 3), ("ab c='d' e", 9)]
    {
        assert_eq!(last_word(text), wanted, "{text}");
    }
}
