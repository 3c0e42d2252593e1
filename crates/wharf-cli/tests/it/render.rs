//! `wharf render`.

use crate::desk::Desk;

#[test]
fn l64_the_inventory_is_markdown() {
    let desk = Desk::new();
    let ran = desk.run(&["render"]).ok();
    assert!(ran.out.starts_with("## MCP Integrations\n\n"), "{ran:?}");
    assert!(ran.out.contains("\n### demo\n\n- `demo_echo` - "), "{ran:?}");
    let document = desk.run(&["render", "--json"]).ok().json();
    assert_eq!(document["text"], ran.out.as_str());
    assert_eq!(document["toolCount"], 8);
}

#[test]
fn l64_a_template_is_filled() {
    let desk = Desk::new();
    let good = desk.good_server();
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}]\n[mcp.one]\ncommand = {good:?}\n[mcp.two]\ncommand = {good:?}\n"
    ));
    let file = desk.project().join("inventory.txt");
    desk.write(&file, "${server_names}: ${tool_count}\n");
    let render = |args: &[&str]| {
        let args: Vec<&str> = [&["render", "--template", "inventory.txt"], args].concat();
        desk.run(&args).ok().out
    };
    assert_eq!(render(&[]), "one, two: 16\n");
    assert_eq!(render(&["two"]), "two: 8\n");
    assert_eq!(render(&["two", "one"]), "one, two: 16\n");
}

#[test]
fn l64_a_mistake_is_told_before_anything_is_started() {
    let desk = Desk::new();
    let good = desk.good_server();
    desk.user(&format!("[policy]\ncommands = [{good:?}]\n[mcp.good]\ncommand = {good:?}\n"));
    desk.write(&desk.project().join("bad.txt"), "fine\n${tool_cuont}\n");
    let ran = desk.run(&["render", "--template", "bad.txt"]);
    assert_eq!(ran.code, 7, "{ran:?}");
    assert!(ran.err.contains("line 2 of the template") && ran.err.contains("`tool_count`"), "{ran:?}");
    let ran = desk.run(&["render", "--template", "absent.txt"]);
    assert!(ran.code != 0 && ran.err.contains("absent.txt"), "{ran:?}");
    let ran = desk.run(&["render", "good", "goood"]);
    assert!(ran.code != 0 && ran.err.contains("did you mean `good`"), "{ran:?}");
    assert!(!desk.was_started());
}

#[test]
fn l65_a_server_that_fails_is_left_out_and_reported() {
    let desk = Desk::new();
    let (good, bad) = (desk.good_server(), desk.dying_server());
    desk.user(&format!(
        "[policy]\ncommands = [{good:?}, {bad:?}]\n[mcp.bad]\ncommand = {bad:?}\n[mcp.good]\ncommand = {good:?}\n"
    ));
    let ran = desk.run(&["render"]).ok();
    assert!(ran.out.contains("### good") && !ran.out.contains("### bad"), "{ran:?}");
    assert!(ran.err.contains("server `bad`"), "{ran:?}");
    let ran = desk.run(&["render", "bad"]);
    assert_eq!(ran.code, 4, "{ran:?}");
}
