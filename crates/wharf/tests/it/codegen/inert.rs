//! What a stranger says stays a comment, a literal or a plain name: in the source, and in what rustdoc makes of it.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

use serde_json::json;
use syn::{Attribute, Fields, ImplItem, Item, Meta};

use super::{corpus, generate};
use crate::support::folder;

/// Whether a source is what a generated module is and nothing more: a client with functions, types, and no name twice.
pub(super) fn is_inert(source: &str) -> Result<(), String> {
    let file = syn::parse_file(source).map_err(|e| format!("it is not Rust: {e}"))?;
    let mut names = HashSet::new();
    attributes(&file.attrs)?;
    let mut clients = 0;
    for item in &file.items {
        let mut inner = HashSet::new();
        match item {
            Item::Use(_) => {}
            Item::Struct(of) => {
                attributes(&of.attrs)?;
                unique(&mut names, &of.ident)?;
                for field in &of.fields {
                    attributes(&field.attrs)?;
                    unique(&mut inner, field.ident.as_ref().ok_or("a field without a name")?)?;
                }
            }
            Item::Enum(of) => {
                attributes(&of.attrs)?;
                unique(&mut names, &of.ident)?;
                for variant in &of.variants {
                    attributes(&variant.attrs)?;
                    unique(&mut inner, &variant.ident)?;
                    if matches!(variant.fields, Fields::Named(_)) || variant.fields.len() > 1 {
                        return Err(format!("the variant {} has a body", variant.ident));
                    }
                }
            }
            Item::Impl(of) => {
                clients += 1;
                for item in &of.items {
                    let ImplItem::Fn(of) = item else {
                        return Err("an impl with more than functions".into());
                    };
                    attributes(&of.attrs)?;
                    unique(&mut inner, &of.sig.ident)?;
                    if of.block.stmts.len() > 3 {
                        return Err(format!("the function {} does more than it should", of.sig.ident));
                    }
                }
            }
            _ => return Err("an item of another kind".into()),
        }
    }
    if clients == 1 { Ok(()) } else { Err(format!("{clients} impls")) }
}

fn unique(names: &mut HashSet<String>, ident: &syn::Ident) -> Result<(), String> {
    let name = ident.to_string();
    let is_plain =
        name.strip_prefix("r#").unwrap_or(&name).chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    if is_plain && names.insert(name.clone()) {
        Ok(())
    } else {
        Err(format!("the name `{name}` is odd or there twice"))
    }
}

fn attributes(attributes: &[Attribute]) -> Result<(), String> {
    for attribute in attributes {
        let known = ["doc", "derive", "serde", "allow", "default"];
        if !known.iter().any(|name| attribute.path().is_ident(name)) {
            return Err("an attribute of another kind".into());
        }
        if let Meta::NameValue(doc) = &attribute.meta
            && !matches!(&doc.value, syn::Expr::Lit(_))
        {
            return Err("a comment that is no comment".into());
        }
    }
    Ok(())
}

#[test]
fn l57_hostile_names_and_words_do_not_become_code() {
    let source = generate("odd", &corpus()).source;
    assert_eq!(is_inert(&source), Ok(()));
    assert!(source.chars().all(|c| !wharf::text::is_unsafe_to_show(c) || c == '\n'), "something is hidden");
    // The checker sees code where there is some.
    let client = "struct A; impl A { fn a() {} }";
    assert_eq!(is_inert(client), Ok(()));
    for more in [
        "fn evil() {}",
        "mod evil {}",
        "const _: () = evil();",
        "evil!();",
        "struct A {}",
        "static A: u8 = 0;",
    ] {
        assert!(is_inert(&format!("{client} {more}")).is_err(), "{more}");
    }
    assert!(is_inert("#![feature(evil)] struct A; impl A {}").is_err());
    assert!(is_inert("struct A; impl A { fn a() {} fn a() {} }").is_err());
}

/// The comments of a source, each on an empty struct, so that rustdoc needs nothing else.
fn comments(source: &str) -> String {
    let mut text = "//! Comments.\n".to_owned();
    let mut number = 0;
    let mut lines = source.lines().map(str::trim).peekable();
    while let Some(line) = lines.next() {
        if line.starts_with("///") {
            writeln!(text, "{line}").unwrap();
            if !lines.peek().is_some_and(|next| next.starts_with("///")) {
                number += 1;
                writeln!(text, "pub struct S{number};").unwrap();
            }
        }
    }
    assert!(number > 20);
    text
}

fn rustdoc(source: &str, args: &[&str]) -> (bool, String, String) {
    let folder = folder();
    let file = folder.path().join("docs.rs");
    fs::write(&file, source).unwrap();
    let done = Command::new("rustdoc")
        .args(["--edition", "2024"])
        .args(args)
        .arg(&file)
        .current_dir(&folder)
        .output();
    let done = done.unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let pages = fs::read_dir(folder.path().join("doc/docs")).into_iter().flatten().flatten();
    let pages = pages.filter_map(|page| fs::read_to_string(page.path()).ok()).collect();
    (done.status.success(), said, pages)
}

#[test]
fn l57_hostile_descriptions_run_nowhere() {
    let comments = comments(&generate("odd", &corpus()).source);
    let (_, said, _) = rustdoc(&comments, &["--test"]);
    assert!(said.contains("running 0 tests"), "{said}");
    let (well, said, pages) = rustdoc(&comments, &["-D", "warnings"]);
    assert!(well, "{said}");
    assert!(
        pages.contains("alert(1)") && pages.contains("std::process::abort()"),
        "the words are still there"
    );
    assert!(!pages.contains("<script>alert") && !pages.contains("href=\"javascript"), "and harmless");

    // What the comments say would run as it is.
    let naive = "//! Docs.\n/// ```ignore\n/// abort()\n/// ```\npub struct A;\n/// <script>alert(1)</script>\npub struct B;\n";
    let (_, said, _) = rustdoc(naive, &["--test"]);
    assert!(said.contains("running 1 test"), "{said}");
    let (_, _, pages) = rustdoc(naive, &["-A", "warnings"]);
    assert!(pages.contains("<script>alert"));
}

#[test]
fn l57_honest_descriptions_stay_readable() {
    let module = generate(
        "dock",
        &[json!({
            "name": "create_issue",
            "description": "Create a new issue in a repository.\n\nNeeds `write` access -> see the *manual*.",
            "inputSchema": {"type": "object", "properties": {"title": {"type": "string", "description": "What it is about"}}},
        })],
    );
    let expected = "    /// Create a new issue in a repository.\n    ///\n    /// Needs `write` access -> see the *manual*.\n    pub async fn create_issue(&self, arguments: &CreateIssue) -> wharf::Outcome {\n";
    assert!(module.source.contains(expected), "{}", module.source);
    assert!(module.source.contains("    /// What it is about\n"), "{}", module.source);
}
