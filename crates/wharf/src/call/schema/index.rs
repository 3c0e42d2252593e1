//! What the references in a schema point at, all within the schema itself.

use std::collections::HashMap;

use jsonschema::Draft;
use serde_json::Value;
use url::Url;

use super::measure::LITERALS;
use super::words::short;

/// Where every object of a schema belongs, and what its names lead to.
#[derive(Debug)]
pub(super) struct Index<'s> {
    /// The resources in a document: the whole, and each part with an `$id`.
    resources: Vec<(Url, &'s Value)>,
    by_url: HashMap<String, usize>,
    anchors: HashMap<(usize, &'s str), &'s Value>,
    /// Targets of `$dynamicRef`, wherever they stand.
    dynamic: HashMap<&'s str, Vec<&'s Value>>,
    recursive: Vec<&'s Value>,
    resource_of: HashMap<*const Value, usize>,
    id_key: &'static str,
}

/// The address of a schema that gives itself none.
const NOWHERE: &str = "schema:///";

// === impl Index ===

impl<'s> Index<'s> {
    /// Reads a schema, and makes sure that every reference in it, used or not, stays within it.
    pub(super) fn of(schema: &'s Value, draft: Draft) -> Result<Self, String> {
        let nowhere = Url::parse(NOWHERE).map_err(|e| e.to_string())?;
        let mut index = Self {
            resources: vec![(nowhere, schema)],
            by_url: HashMap::from([(NOWHERE.to_owned(), 0)]),
            anchors: HashMap::new(),
            dynamic: HashMap::new(),
            recursive: Vec::new(),
            resource_of: HashMap::new(),
            id_key: if draft == Draft::Draft4 { "id" } else { "$id" },
        };
        let mut references = Vec::new();
        index.walk(schema, 0, &mut references)?;
        for (at, keyword, reference) in references {
            index.targets(at, keyword, reference)?;
        }
        Ok(index)
    }

    fn walk(
        &mut self,
        value: &'s Value,
        mut resource: usize,
        references: &mut Vec<(&'s Value, &'s str, &'s str)>,
    ) -> Result<(), String> {
        if let Value::Array(items) = value {
            return items.iter().try_for_each(|item| self.walk(item, resource, references));
        }
        let Value::Object(members) = value else {
            return Ok(());
        };
        if let Some(Value::String(id)) = members.get(self.id_key) {
            resource = self.name(value, id, resource)?;
        }
        self.resource_of.insert(std::ptr::from_ref(value), resource);
        for (key, member) in members {
            match (key.as_str(), member) {
                ("$anchor", Value::String(name)) => drop(self.anchors.insert((resource, name), value)),
                ("$dynamicAnchor", Value::String(name)) => {
                    self.anchors.insert((resource, name), value);
                    self.dynamic.entry(name).or_default().push(value);
                }
                ("$recursiveAnchor", Value::Bool(true)) => self.recursive.push(value),
                ("$ref" | "$dynamicRef" | "$recursiveRef", Value::String(to)) => {
                    references.push((value, key, to))
                }
                (key, _) if LITERALS.contains(&key) => {}
                _ => self.walk(member, resource, references)?,
            }
        }
        Ok(())
    }

    /// Takes an `$id`; returns the resource that starts here.
    fn name(&mut self, value: &'s Value, id: &'s str, resource: usize) -> Result<usize, String> {
        if let Some(anchor) = id.strip_prefix('#') {
            self.anchors.insert((resource, anchor), value);
            return Ok(resource);
        }
        let url = self.resources[resource].0.join(id);
        let mut url = url.map_err(|_| format!("its `{}` {} is not an address", self.id_key, short(id)))?;
        url.set_fragment(None);
        self.by_url.insert(url.to_string(), self.resources.len());
        self.resources.push((url, value));
        Ok(self.resources.len() - 1)
    }

    /// What a reference may lead to. One leads to one place, except the dynamic ones.
    pub(super) fn targets(
        &self,
        at: &'s Value,
        keyword: &str,
        reference: &str,
    ) -> Result<Vec<&'s Value>, String> {
        let mut targets = Vec::new();
        let name = reference.strip_prefix('#').unwrap_or_default();
        match keyword {
            "$dynamicRef" => targets.extend(self.dynamic.get(name).into_iter().flatten()),
            "$recursiveRef" => targets.extend(&self.recursive),
            _ => {}
        }
        if targets.is_empty() {
            targets.extend(self.target(at, reference)?);
        }
        Ok(targets)
    }

    /// What a reference leads to; `None` for the published schema of a dialect, which is built in.
    fn target(&self, at: &'s Value, reference: &str) -> Result<Option<&'s Value>, String> {
        let broken = |why: &str| format!("its reference {} {why}", short(reference));
        let resource = self.resource_of.get(&std::ptr::from_ref(at)).copied().unwrap_or(0);
        let url = self.resources[resource].0.join(reference).map_err(|_| broken("is not an address"))?;
        let fragment = url.fragment().unwrap_or_default().to_owned();
        let mut whole = url;
        whole.set_fragment(None);
        let Some(&resource) = self.by_url.get(whole.as_str()) else {
            if super::build::dialect(whole.as_str()).is_some() {
                return Ok(None);
            }
            return Err(broken("leads outside the schema, and nothing is fetched for a schema"));
        };
        let root = self.resources[resource].1;
        let fragment = percent_decoded(&fragment);
        let found = match fragment.as_str() {
            "" => Some(root),
            pointer if pointer.starts_with('/') => root.pointer(pointer),
            anchor => self.anchors.get(&(resource, anchor)).copied(),
        };
        found.map(Some).ok_or_else(|| broken("leads to nothing in the schema"))
    }
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let hex = tail
            .get(..2)
            .and_then(|h| std::str::from_utf8(h).ok())
            .and_then(|h| u8::from_str_radix(h, 16).ok());
        match (first, hex) {
            (b'%', Some(byte)) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}
