//! Modules generated for real servers, compiled here and used against them: what `wharf codegen` promises its users.
//!
//! `codegen/memory.rs` and `codegen/everything.rs` are compared byte for byte with what is generated from the running
//! server; `WHARF_WRITE=1` writes them anew, which a new release of a server may need.

#[rustfmt::skip]
mod everything;
#[rustfmt::skip]
mod memory;

use std::path::Path;

use wharf::Host;
use wharf::config::{Profile, SandboxSetting, Transport};
use wharf::names::ServerName;
use wharf::secret::Secret;

use crate::process::reference;
use crate::walk::{SERVER, host, program};

/// What is generated now is what is compiled here.
async fn same(host: &Host, name: &str) {
    let listing = host.tools_of(SERVER).await.unwrap();
    let tools = listing.snapshot.tools().iter().map(|route| &*route.tool);
    let module = wharf::render::rust(&ServerName::parse(name).unwrap(), tools);
    assert!(module.notes.is_empty(), "{:?}", module.notes);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/real/codegen/{name}.rs"));
    if std::env::var_os("WHARF_WRITE").is_some() {
        std::fs::write(&file, &module.source).unwrap();
    }
    assert!(std::fs::read_to_string(&file).unwrap() == module.source, "codegen/{name}.rs is out of date");
}

#[tokio::test]
async fn memory() {
    use memory::{
        CreateEntities, CreateEntitiesEntitiesItem, CreateRelations, CreateRelationsRelationsItem, Memory,
        OpenNodes, SearchNodes,
    };
    let folder = tempfile::tempdir().unwrap();
    let mut server = program("node", &[&reference("memory")], "codegen-memory");
    let profile = Profile { write: vec![folder.path().into()], ..Profile::default() };
    server.sandbox = Some(SandboxSetting::On(Box::new(profile)));
    if let Transport::Stdio(stdio) = &mut server.transport {
        let file = folder.path().join("memory.jsonl").display().to_string();
        stdio.env.insert("MEMORY_FILE_PATH".into(), Secret::new(file));
    }
    let host = host(server).await;
    same(&host, "memory").await;
    let memory = Memory::named(host, SERVER);

    let entity = |name: &str| CreateEntitiesEntitiesItem {
        name: name.into(),
        entity_type: "harbour".into(),
        observations: vec!["on the Baltic".into()],
    };
    let entities = vec![entity("Kiel"), entity("Visby")];
    let created = memory.create_entities(&CreateEntities { entities }).await.unwrap();
    assert_eq!(created.entities.iter().map(|e| e.name.as_str()).collect::<Vec<_>>(), ["Kiel", "Visby"]);
    let relation = CreateRelationsRelationsItem {
        from: "Kiel".into(),
        to: "Visby".into(),
        relation_type: "faces".into(),
    };
    memory.create_relations(&CreateRelations { relations: vec![relation] }).await.unwrap();
    let graph = memory.read_graph().await.unwrap();
    assert_eq!((graph.entities.len(), graph.relations[0].relation_type.as_str()), (2, "faces"));
    assert_eq!(graph.entities[0].observations, ["on the Baltic"]);
    let found = memory.search_nodes(&SearchNodes { query: "Visby".into() }).await.unwrap();
    assert_eq!(found.entities[0].entity_type, "harbour");
    let opened = memory.open_nodes(&OpenNodes { names: vec!["nowhere".into()] }).await.unwrap();
    assert!(opened.entities.is_empty());
    memory.host().close().await;
}

#[tokio::test]
async fn everything() {
    use everything::{Echo, Everything, GetStructuredContent, GetStructuredContentLocation, GetSum};
    let host = host(program("node", &[&reference("everything"), "stdio"], "codegen-everything")).await;
    same(&host, "everything").await;
    let everything = Everything::named(host, SERVER);
    let location = GetStructuredContentLocation::NewYork;
    let weather = everything.get_structured_content(&GetStructuredContent { location }).await.unwrap();
    assert!(weather.temperature > -100.0 && !weather.conditions.is_empty(), "{weather:?}");
    let sum = everything.get_sum(&GetSum { a: 20.0, b: 22.0 }).await;
    assert!(sum.to_text().contains("42"), "{sum:?}");
    let echo = everything.echo(&Echo { message: "ahoy".into() }).await;
    assert!(echo.to_text().contains("ahoy"), "{echo:?}");
    everything.host().close().await;
}
