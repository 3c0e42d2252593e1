//! `wharf codegen`.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use crate::desk::Desk;

#[test]
fn l57_a_module_is_written_to_standard_output_or_a_file() {
    let desk = Desk::new();
    let ran = desk.run(&["codegen", "demo"]).ok();
    assert!(ran.out.starts_with("//! The tools of the MCP server `demo`, typed.\n"), "{ran:?}");
    assert!(
        ran.out.contains("pub async fn add(&self, arguments: &Add) -> wharf::Result<AddResult> {"),
        "{ran:?}"
    );
    assert_eq!(ran.err, "");

    let written = desk.run(&["codegen", "demo", "-o", "src/demo.rs"]).ok();
    assert_eq!((written.out.as_str(), written.err.contains("wrote ")), ("", true), "{written:?}");
    let file = desk.project().join("src/demo.rs");
    assert_eq!(fs::read_to_string(&file).unwrap(), ran.out);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o044, 0o044, "source is for all to read: {mode:o}");
    // Once more, and in the name's other spelling.
    let again = desk.run(&["codegen", "DEMO", "--output", "src/demo.rs"]).ok();
    assert!(again.err.contains("is up to date"), "{again:?}");

    let document = desk.run(&["codegen", "demo", "--json"]).ok().json();
    assert_eq!(document["source"], ran.out);
    assert_eq!(document["notes"], serde_json::json!([]));
}

#[test]
fn l57_a_file_that_was_not_generated_is_not_overwritten() {
    let desk = Desk::new();
    let good = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{good:?}]\n[mcp.good]\ncommand = {good:?}\n"));
    let file = desk.project().join("mine.rs");
    fs::write(&file, "fn mine() {}\n").unwrap();
    let ran = desk.run(&["codegen", "good", "-o", "mine.rs"]);
    assert_eq!(ran.code, 1, "{ran:?}");
    assert!(ran.err.contains("was not written by `wharf codegen`") && ran.err.contains("--force"), "{ran:?}");
    assert_eq!(fs::read_to_string(&file).unwrap(), "fn mine() {}\n");
    assert!(!desk.was_started(), "the server need not be asked for that");

    desk.run(&["codegen", "good", "-o", "mine.rs", "--force"]).ok();
    let generated = fs::read_to_string(&file).unwrap();
    assert!(generated.contains("pub struct Good"), "{generated}");
    // A generated one is, without being asked.
    fs::write(&file, generated.replace("pub struct Good", "pub struct Bad")).unwrap();
    desk.run(&["codegen", "good", "-o", "mine.rs"]).ok();
    assert_eq!(fs::read_to_string(&file).unwrap(), generated);
}

#[test]
fn l57_a_file_that_is_out_of_date_is_noticed() {
    let desk = Desk::new();
    let check = ["codegen", "demo", "-o", "demo.rs", "--check"];
    let ran = desk.run(&check);
    assert_eq!((ran.code, ran.err.contains("is not there")), (1, true), "{ran:?}");
    assert!(ran.err.contains("wharf codegen demo -o "), "{ran:?}");
    desk.run(&["codegen", "demo", "-o", "demo.rs"]).ok();
    desk.run(&check).ok();
    let file = desk.project().join("demo.rs");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("f64", "f32")).unwrap();
    let ran = desk.run(&check);
    assert_eq!((ran.code, ran.err.contains("is out of date")), (1, true), "{ran:?}");
    assert!(fs::read_to_string(&file).unwrap().contains("f32"), "nothing is written");
}

#[test]
fn l57_what_cannot_be_is_told_as_elsewhere() {
    let desk = Desk::new();
    let bad = desk.dying_server();
    desk.user(&format!("[policy]\ncommands = [{bad:?}]\n[mcp.bad]\ncommand = {bad:?}\n"));
    let cases: [(&[&str], i32); 5] = [
        (&["codegen"], 2),
        (&["codegen", "demo", "--check"], 2),
        (&["codegen", "demo", "--force"], 2),
        (&["codegen", "bad"], 4),
        (&["codegen", "nobody"], 5),
    ];
    for (args, code) in cases {
        let ran = desk.run(args);
        assert_eq!((ran.code, ran.out.as_str()), (code, ""), "{args:?}: {ran:?}");
    }
    let ran = desk.run(&["codegen", "demo", "-o", "/proc/nowhere/demo.rs"]);
    assert_eq!((ran.code, ran.err.contains("cannot write")), (1, true), "{ran:?}");
}
