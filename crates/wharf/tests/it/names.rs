//! Public names: valid, unique, stable, and never an identity.

#![expect(clippy::unwrap_used, reason = "what a test sets up itself must be there")]

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::json;
use wharf::Error;
use wharf::config::ServerConfig;
use wharf::mcp::Tool;
use wharf::names::ServerName;
use wharf::registry::{
    NAME_MAX, NAME_MAX_WIDE, NameRules, Naming, Registry, ServerTools, Snapshot, TOOLS_MAX,
};
use wharf::wire::Json;

fn tool(name: &str) -> Arc<Tool> {
    let definition = json!({"name": name, "inputSchema": {"type": "object"}});
    Arc::new(Tool::read(Json::from(definition)).unwrap())
}

fn config(server: &str) -> ServerConfig {
    ServerConfig::stdio(ServerName::parse(server).unwrap(), "true", Vec::<String>::new())
}

fn offer(config: ServerConfig, tools: &[&str]) -> ServerTools {
    ServerTools {
        config: Arc::new(config),
        tools: tools.iter().map(|t| tool(t)).collect(),
        fingerprint: [0; 32],
        ttl: None,
    }
}

fn snapshot(rules: NameRules, servers: Vec<ServerTools>) -> Arc<Snapshot> {
    let registry = Registry::new(rules, []);
    servers.into_iter().for_each(|s| drop(registry.replace(s)));
    registry.snapshot()
}

fn rules(naming: Naming) -> NameRules {
    NameRules { naming, max_len: NAME_MAX }
}

/// The public names of one tool of each server.
fn names(naming: Naming, pairs: &[(&str, &str)]) -> Vec<String> {
    let snapshot = snapshot(rules(naming), pairs.iter().map(|(s, t)| offer(config(s), &[t])).collect());
    pairs
        .iter()
        .map(|(s, t)| {
            let server = ServerName::parse(s).unwrap();
            snapshot.find(server.as_str(), t).unwrap().public.to_string()
        })
        .collect()
}

#[test]
fn l52_prefixed_names() {
    assert_eq!(names(Naming::Prefixed, &[("github", "create_issue")]), ["github_create_issue"]);
    assert_eq!(names(Naming::Prefixed, &[("github", "list-repos")]), ["github_list-repos"]);
    assert_eq!(names(Naming::Prefixed, &[("files", "read.file v2")]), ["files_read_file_v2"]);
    let mut prefixed = config("github");
    prefixed.tool_prefix = Some("gh".into());
    let mut bare = config("time");
    bare.tool_prefix = Some(String::new());
    let snapshot = snapshot(NameRules::default(), vec![offer(prefixed, &["list"]), offer(bare, &["now"])]);
    assert!(snapshot.route("gh_list").is_some());
    assert!(snapshot.route("now").is_some());
}

#[test]
fn l52_mcp_names_are_as_nexus3_writes_them() {
    assert_eq!(names(Naming::Mcp, &[("github", "list-repos")]), ["mcp_github_list_repos"]);
    assert_eq!(names(Naming::Mcp, &[("GitHub API", "list-repos")]), ["mcp_github_api_list_repos"]);
    assert_eq!(names(Naming::Mcp, &[("evil/../path", "../../etc")]), ["mcp_evil_path_etc"]);
}

#[test]
fn l52_bare_names() {
    assert_eq!(names(Naming::Bare, &[("weather", "forecast"), ("files", "read")]), ["forecast", "read"]);
}

#[test]
fn l52_a_long_name_is_cut_and_told_apart() {
    let exact = "t".repeat(NAME_MAX - "s_".len());
    assert_eq!(names(Naming::Prefixed, &[("s", &exact)])[0], format!("s_{exact}"));
    let long = format!("{exact}x");
    let other = format!("{exact}y");
    let cut = names(Naming::Prefixed, &[("s", &long)])[0].clone();
    assert_eq!(cut.len(), NAME_MAX);
    assert_ne!(cut, names(Naming::Prefixed, &[("s", &other)])[0]);
    let wide = NameRules { max_len: NAME_MAX_WIDE, ..NameRules::default() };
    assert!(snapshot(wide, vec![offer(config("s"), &[&long])]).route(&format!("s_{long}")).is_some());
}

#[test]
fn nam_01_two_servers_with_one_name_both_get_a_suffix() {
    let pair = names(Naming::Bare, &[("a", "search"), ("b", "search")]);
    assert_ne!(pair[0], pair[1]);
    assert!(pair.iter().all(|n| n.starts_with("search_") && n.len() == "search_".len() + 10), "{pair:?}");
    // The classic of joined names: both would be `a__b__c`.
    let joined = names(Naming::Prefixed, &[("a", "_b__c"), ("a__b", "_c")]);
    assert_ne!(joined[0], joined[1]);
    // The twin: a tool that does not clash keeps its plain name beside those that do.
    let beside = snapshot(
        rules(Naming::Bare),
        vec![offer(config("a"), &["search"]), offer(config("b"), &["search", "fetch"])],
    );
    assert!(beside.route("fetch").is_some() && beside.route("search").is_none());
}

#[test]
fn nam_01_a_new_neighbour_never_bears_the_old_name() {
    let registry = Registry::new(rules(Naming::Bare), []);
    let before = registry.replace(offer(config("honest"), &["search"]));
    assert_eq!(before.route("search").unwrap().server.as_str(), "honest");
    let after = registry.replace(offer(config("newcomer"), &["search"]));
    assert!(after.route("search").is_none(), "the plain name belongs to neither");
    // Not even one that copies the suffix which the honest tool gets.
    let suffixed = after.find("honest", "search").unwrap().public.to_string();
    let sly = registry.replace(offer(config("newcomer"), &["search", &suffixed]));
    assert!(sly.route(&suffixed).is_none());
    assert!(sly.find("honest", "search").is_some() && sly.find("newcomer", &suffixed).is_some());
    // The snapshot that a call already holds does not change under it.
    assert_eq!(before.route("search").unwrap().server.as_str(), "honest");
}

#[test]
fn nam_02_names_of_wharf_itself_are_refused() {
    let snapshot =
        snapshot(rules(Naming::Bare), vec![offer(config("s"), &["wharf_call", "Wharf_search", "wharfs"])]);
    assert!(snapshot.route("wharf_call").is_none() && snapshot.find("s", "Wharf_search").is_none());
    assert_eq!(snapshot.skipped().len(), 2);
    assert!(snapshot.skipped()[0].reason.contains("wharf_"), "{:?}", snapshot.skipped());
    assert!(snapshot.route("wharfs").is_some(), "the twin that only looks a little like it");
}

#[test]
fn nam_03_odd_names_are_encoded_injectively() {
    let wide = "x".repeat(129);
    let odd = [
        "a b", "a/b", "a..b", "A b", "sea rch", "seаrch", "é", "e\u{301}", "日本", "語", "-", "..", &wide,
        "a_b",
    ];
    for naming in [Naming::Prefixed, Naming::Mcp, Naming::Bare] {
        let snapshot = snapshot(rules(naming), vec![offer(config("s"), &odd)]);
        assert!(snapshot.skipped().is_empty(), "{:?}", snapshot.skipped());
        let mut seen = HashSet::new();
        for name in odd {
            let route = snapshot.find("s", name).unwrap();
            assert!(valid(&route.public, NAME_MAX), "{}", route.public);
            assert!(seen.insert(route.public.to_ascii_lowercase()), "{}", route.public);
            assert_eq!(snapshot.route(&route.public).unwrap().tool.name.as_str(), name);
        }
    }
    for refused in [
        json!({"name": "", "inputSchema": {"type": "object"}}),
        json!({"name": "a\u{1b}[31m", "inputSchema": {"type": "object"}}),
    ] {
        assert!(Tool::read(Json::from(refused)).is_err());
    }
}

#[test]
fn nam_03_names_that_differ_in_case_only_clash() {
    let pair = names(Naming::Bare, &[("a", "Search"), ("b", "search")]);
    assert!(pair[0].starts_with("Search_") && pair[1].starts_with("search_"), "{pair:?}");
    assert!(!pair[0].eq_ignore_ascii_case(&pair[1]));
}

#[test]
fn nam_07_more_tools_than_bearable_are_cut_with_a_reason() {
    let many: Vec<String> = (0..=TOOLS_MAX).map(|i| format!("t{i}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    for (count, skipped) in [(TOOLS_MAX - 1, 0), (TOOLS_MAX, 0), (TOOLS_MAX + 1, 1)] {
        let snapshot = snapshot(
            rules(Naming::Bare),
            vec![offer(config("s"), &many[..count]), offer(config("calm"), &["x"])],
        );
        assert_eq!(snapshot.tools().len(), count.min(TOOLS_MAX) + 1);
        assert_eq!(snapshot.skipped().len(), skipped);
        assert!(snapshot.route("x").is_some());
    }
}

#[test]
fn nam_07_a_chain_of_provoked_clashes_ends_soon() {
    // Each tool bears the suffixed name that the one before gets when it clashes.
    let registry = Registry::new(rules(Naming::Bare), []);
    let mut chain = vec!["a".to_owned()];
    for _ in 0..20 {
        let tools: Vec<&str> = chain.iter().map(String::as_str).collect();
        let twin = offer(config("twin"), &["a"]);
        registry.replace(twin);
        let snapshot = registry
            .replace(ServerTools { fingerprint: [chain.len() as u8; 32], ..offer(config("s"), &tools) });
        let last = snapshot.find("s", chain.last().unwrap()).unwrap().public.to_string();
        chain.push(last);
    }
    let snapshot = registry.snapshot();
    let distinct: HashSet<_> = snapshot.tools().iter().map(|r| r.public.to_ascii_lowercase()).collect();
    assert_eq!(distinct.len(), snapshot.tools().len());
}

#[test]
fn nam_09_the_configured_name_is_the_identity() {
    let mut definition =
        json!({"name": "search", "inputSchema": {"type": "object"}, "serverInfo": {"name": "github"}});
    definition["_meta"] = json!({"io.modelcontextprotocol/serverInfo": {"name": "github"}});
    let pretender = Arc::new(Tool::read(Json::from(definition)).unwrap());
    let offered = ServerTools {
        config: Arc::new(config("pretender")),
        tools: [pretender].into(),
        fingerprint: [1; 32],
        ttl: None,
    };
    let snapshot = snapshot(NameRules::default(), vec![offer(config("github"), &["search"]), offered]);
    assert_eq!(snapshot.route("github_search").unwrap().server.as_str(), "github");
    assert_eq!(snapshot.route("pretender_search").unwrap().server.as_str(), "pretender");
}

#[test]
fn l53_hidden_tools_have_no_route() {
    let all = ["create", "delete", "list"];
    let with = |enabled: Option<&[&str]>, disabled: &[&str]| {
        let mut config = config("s");
        config.enabled_tools = enabled.map(|names| names.iter().map(|n| (*n).to_owned()).collect());
        config.disabled_tools = disabled.iter().map(|n| (*n).to_owned()).collect();
        let snapshot = snapshot(NameRules::default(), vec![offer(config, &all)]);
        snapshot.tools().iter().map(|r| r.public.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(with(None, &[]), ["s_create", "s_delete", "s_list"]);
    assert_eq!(with(None, &["delete"]), ["s_create", "s_list"]);
    assert_eq!(with(Some(&["create", "delete"]), &["delete"]), ["s_create"]);
    assert_eq!(with(Some(&[]), &[]), Vec::<String>::new());
    // Filters speak of original names, not of public ones.
    assert_eq!(with(Some(&["s_create"]), &[]), Vec::<String>::new());
}

#[test]
fn l50_tools_are_listed_in_the_order_of_the_configuration() {
    let order = ["c", "a", "b"].map(|s| ServerName::parse(s).unwrap());
    let registry = Registry::new(NameRules::default(), order.clone());
    for late in ["b", "late", "a", "c"] {
        registry.replace(offer(config(late), &["z", "y"]));
    }
    let listed = |s: &Snapshot| s.tools().iter().map(|r| r.public.to_string()).collect::<Vec<_>>();
    assert_eq!(listed(&registry.snapshot()), ["c_z", "c_y", "a_z", "a_y", "b_z", "b_y", "late_z", "late_y"]);
    registry.remove(&order[1]);
    assert_eq!(listed(&registry.snapshot()), ["c_z", "c_y", "b_z", "b_y", "late_z", "late_y"]);
    registry.replace(offer(config("a"), &["z"]));
    assert_eq!(listed(&registry.snapshot())[2], "a_z");
}

#[test]
fn l50_a_name_listed_twice_by_its_server_is_reported() {
    let snapshot = snapshot(NameRules::default(), vec![offer(config("s"), &["x", "x"])]);
    assert_eq!(snapshot.tools().len(), 1);
    assert_eq!(snapshot.skipped().len(), 1);
}

#[test]
fn l50_an_unknown_name_gets_suggestions() {
    let snapshot =
        snapshot(NameRules::default(), vec![offer(config("github"), &["create_issue", "list_repos"])]);
    assert_eq!(snapshot.suggest("github_creat_issue")[0], "github_create_issue");
    assert_eq!(snapshot.suggest("list_repo")[0], "github_list_repos");
    assert!(snapshot.suggest("qqqq").is_empty());
    let error = snapshot.expect_route("github_createissue\u{1b}[31m").unwrap_err();
    let Error::UnknownTool { name, hint } = &error else { panic!("{error}") };
    assert!(!name.contains('\u{1b}') && hint.contains("`github_create_issue`"), "{name} {hint}");
}

fn valid(name: &str, max: usize) -> bool {
    (1..=max).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
}

/// Names that clash often: few letters, separators, cases, and the prefixes of others.
fn some_tools() -> impl Strategy<Value = Vec<(String, String)>> {
    let server = "[ab][_]{0,2}[ab]?";
    let tool = prop_oneof!["[abAB_/ -]{1,4}", "[a-c]{60,70}", "\\PC{1,12}"];
    proptest::collection::vec((server, tool), 0..40)
}

fn build(pairs: &[(String, String)], naming: Naming) -> HashMap<(String, String), String> {
    let mut by_server: HashMap<&str, Vec<&str>> = HashMap::new();
    let mut order = Vec::new();
    for (server, tool) in pairs {
        let tools = by_server.entry(server).or_insert_with(|| {
            order.push(server.as_str());
            Vec::new()
        });
        if !tools.contains(&tool.as_str()) {
            tools.push(tool);
        }
    }
    let offers = order.iter().map(|s| offer(config(s), &by_server[s])).collect();
    let snapshot = snapshot(rules(naming), offers);
    assert!(snapshot.skipped().is_empty(), "{:?}", snapshot.skipped());
    let routes = snapshot.tools().iter();
    routes.map(|r| ((r.server.to_string(), r.tool.name.as_str().to_owned()), r.public.to_string())).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn l52_names_are_injective_valid_and_free_of_order(pairs in some_tools(), turn in 0usize..40) {
        for naming in [Naming::Prefixed, Naming::Mcp, Naming::Bare] {
            let names = build(&pairs, naming);
            let distinct: HashSet<_> = names.values().map(|n| n.to_ascii_lowercase()).collect();
            prop_assert_eq!(distinct.len(), names.len());
            prop_assert!(names.values().all(|n| valid(n, NAME_MAX)));
            let mut turned = pairs.clone();
            turned.rotate_left(turn.min(pairs.len()));
            turned.reverse();
            prop_assert_eq!(names, build(&turned, naming));
        }
    }

    #[test]
    fn l52_a_larger_set_never_gives_a_name_to_another_tool(pairs in some_tools(), keep in 0usize..40) {
        for naming in [Naming::Prefixed, Naming::Mcp, Naming::Bare] {
            let few = build(&pairs[..keep.min(pairs.len())], naming);
            let many = build(&pairs, naming);
            let holder: HashMap<_, _> = many.iter().map(|(tool, name)| (name.to_ascii_lowercase(), tool)).collect();
            for (tool, name) in &few {
                let now = holder.get(&name.to_ascii_lowercase());
                prop_assert!(now.is_none_or(|now| *now == tool), "{} went from {:?} to {:?}", name, tool, now);
            }
        }
    }
}
