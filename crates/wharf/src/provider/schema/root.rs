//! The schema of the arguments themselves: a plain object, since no provider takes more at this place.

use serde_json::{Map, Value, json};

use super::walk::{Node, Walk, strings};
use super::words;
use crate::provider::loss::How;

/// Keywords that providers refuse at the root.
const REFUSED: [&str; 3] = ["not", "enum", "const"];

impl Walk<'_> {
    /// Makes the root a plain object. A choice of forms becomes one form with the properties of all.
    pub(super) fn plain_root(&mut self, node: &mut Node) -> Result<(), String> {
        let is_object = match node.map.get("type") {
            None => true,
            Some(Value::Array(types)) => types.contains(&"object".into()),
            Some(ty) => ty == "object",
        };
        if !is_object || node.impossible {
            return Err("its schema is not one of an object".into());
        }
        node.map.shift_remove("type");
        node.map.shift_insert(0, "type".into(), "object".into());
        // A choice of one may have a choice in it.
        while let Some(keyword) =
            ["anyOf", "oneOf"].into_iter().find(|keyword| node.map.contains_key(*keyword))
        {
            self.fold(node, keyword)?;
        }
        for keyword in REFUSED {
            if let Some(value) = node.map.shift_remove(keyword) {
                self.give_up(keyword, &value, &mut node.words);
            }
        }
        Ok(())
    }

    fn fold(&mut self, node: &mut Node, keyword: &str) -> Result<(), String> {
        let Some(choice) = node.map.shift_remove(keyword) else { return Ok(()) };
        let told = words::tell(keyword, &choice);
        let Value::Array(branches) = choice else { return Ok(()) };
        let mut forms: Vec<Map<String, Value>> = Vec::new();
        let mut opened = Vec::new();
        for branch in branches {
            let open = self.open.len();
            let mut form = Node { also: vec![json!({ "type": "object" }), branch], ..Node::default() };
            self.flatten(&mut form)?;
            let below = self.open.split_off(open);
            if !form.impossible {
                forms.push(form.map);
                opened = below;
            }
        }
        // A form that no object fits is none to choose, and a choice of one is none.
        if forms.is_empty() {
            node.impossible = true;
            return Ok(());
        }
        if forms.len() == 1 {
            self.open.extend(opened);
            node.also.extend(forms.pop().map(Value::Object));
            return self.flatten(node);
        }
        self.gather(node, &forms)?;
        let how = if told.is_some() { How::Described } else { How::Dropped };
        node.words.extend(told);
        self.lose(keyword, how, true);
        Ok(())
    }

    /// Every property of every form, and as required only what all of them require.
    fn gather(&mut self, node: &mut Node, forms: &[Map<String, Value>]) -> Result<(), String> {
        let is_closed =
            |map: &Map<String, Value>| map.get("additionalProperties") == Some(&Value::Bool(false));
        let mut properties: Map<String, Value> = match node.map.get("properties") {
            Some(Value::Object(own)) => own.clone(),
            _ => Map::new(),
        };
        let own: Vec<String> = properties.keys().cloned().collect();
        let mut gathered: Map<String, Value> = Map::new();
        for (name, schema) in forms.iter().filter_map(|form| form.get("properties")?.as_object()).flatten() {
            if own.contains(name) || is_closed(&node.map) {
                continue;
            }
            let schema = self.copy(schema)?;
            match gathered.entry(name.clone()).or_insert_with(|| json!([])) {
                Value::Array(each) if !each.contains(&schema) => each.push(schema),
                _ => {}
            }
        }
        for (name, each) in gathered {
            let one = match each.as_array().map(Vec::as_slice) {
                Some([only]) => only.clone(),
                _ => json!({ "anyOf": each }),
            };
            properties.insert(name, one);
        }
        if !properties.is_empty() {
            node.map.insert("properties".into(), Value::Object(properties));
        }
        let mut required = strings(node.map.get("required"));
        let mut all = forms.iter().map(|form| strings(form.get("required")));
        let first = all.next().unwrap_or_default();
        let others: Vec<Vec<String>> = all.collect();
        let common = first.into_iter().filter(|name| others.iter().all(|other| other.contains(name)));
        required.extend(
            common.filter(|name| !strings(node.map.get("required")).contains(name)).collect::<Vec<_>>(),
        );
        if !required.is_empty() {
            node.map.insert("required".into(), required.into());
        }
        if !forms.is_empty() && forms.iter().all(is_closed) {
            node.map.entry("additionalProperties").or_insert(Value::Bool(false));
        }
        Ok(())
    }
}
