//! `wharf prompts`: listed and filled in.

use crate::desk::Desk;

#[test]
fn l80_prompts_are_listed_with_their_arguments() {
    let desk = Desk::new();
    let ran = desk.run(&["prompts"]).ok();
    let lines: Vec<&str> = ran.out.lines().collect();
    assert_eq!(lines[0], "demo\tgreet\tname [tone]\tGreets somebody.");
    assert_eq!(lines.len(), 2, "{ran:?}");
    let document = desk.run(&["prompts", "demo", "--json"]).ok().json();
    assert_eq!(document["prompts"][0]["prompt"]["arguments"][0]["required"], true);
}

#[test]
fn l80_a_prompt_is_filled_in_from_words_and_files() {
    let desk = Desk::new();
    let ran = desk.run(&["prompts", "get", "demo", "greet", "name=Ada", "tone=formal"]).ok();
    assert_eq!(ran.out, "Greet Ada in a formal tone.\n", "one message stands alone");
    std::fs::write(desk.project().join("name.txt"), "Grace").unwrap();
    let ran = desk.run(&["prompts", "get", "demo", "greet", "name=@name.txt"]).ok();
    assert_eq!(ran.out, "Greet Grace in a friendly tone.\n");
    let ran = desk.run(&["prompts", "get", "demo", "describe_harbour", "name=kiel"]).ok();
    assert!(
        ran.out.starts_with("user:\nKiel is where") && ran.out.contains("\n\nuser:\nDescribe kiel"),
        "{ran:?}"
    );
    let document = desk.run(&["prompts", "get", "demo", "greet", "name=Ada", "--json"]).ok().json();
    assert_eq!(document["messages"][0]["role"], "user");
}

#[test]
fn l80_what_does_not_fit_a_prompt_is_not_sent() {
    let desk = Desk::new();
    for (args, words) in [
        (vec!["greet"], "missing required argument `name`"),
        (vec!["greet", "name=a", "mood=b"], "it has no argument `mood`"),
        (vec!["greet", "name"], "`name` is not an argument"),
        (vec!["greet", "name=a", "name=b"], "`name` is given twice"),
        (vec!["greet", "name=@nowhere.txt"], "cannot read"),
    ] {
        let ran = desk.run(&[&["prompts", "get", "demo"][..], &args].concat());
        assert_eq!(ran.code, 2, "{ran:?}");
        assert!(ran.out.is_empty() && ran.err.contains(words), "{ran:?}");
    }
}
