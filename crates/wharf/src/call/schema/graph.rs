//! Where a schema leads, and how often it may look at one value.
//!
//! In: a schema of bearable size. Out: its cost by the depth of the arguments, or why it is not used: a reference that
//! leads outside, a loop that looks at the same value for ever, branches that multiply. Nothing is fetched.

use std::collections::HashMap;

use serde_json::Value;

use super::index::Index;

/// The most subschemas that may look at one value, one referring to the next.
pub const CHAIN_MAX: usize = 64;
/// The most subschemas, all branches counted, that may come to look at one value.
pub const WORK_MAX: u64 = 100_000;

/// The cost of one subschema.
#[derive(Debug, Default)]
struct Node {
    weight: u64,
    /// Subschemas that look at the same value.
    same: Vec<usize>,
    /// Subschemas that look at a member or an item: of each group at most one looks at a given one.
    members: Vec<Vec<usize>>,
    items: Vec<Vec<usize>>,
    /// `unevaluated…` goes through the branches once more.
    twice: bool,
}

/// How expensive a schema is.
#[derive(Debug)]
pub(super) struct Cost {
    /// By the depth of the arguments; the last holds for everything deeper if `settled`.
    by_depth: Vec<u64>,
    settled: bool,
    /// The longest chain of subschemas that look at the same value.
    pub(super) chain: usize,
}

struct Graph<'s> {
    index: &'s Index<'s>,
    nodes: Vec<Node>,
    seen: HashMap<*const Value, usize>,
    todo: Vec<&'s Value>,
}

/// What the published schema of a dialect costs, roughly.
const BUILT_IN: u64 = 200;
/// The deepest arguments there are.
const DEPTHS: usize = 128;

// === impl Cost ===

impl Cost {
    pub(super) fn of(schema: &Value, index: &Index<'_>) -> Result<Self, String> {
        let graph = Graph::new(schema, index)?;
        let (order, chain) = graph.order()?;
        let cost = graph.cost(&order, chain);
        // A loop that never reaches a member or an item was refused above; branches that multiply are refused here.
        if cost.by_depth.is_empty() {
            return Err("its branches multiply: checking one value could take millions of steps".into());
        }
        Ok(cost)
    }

    /// How many subschemas may look at one value in arguments that deep; `None` if more than are bearable.
    pub(super) fn at(&self, depth: usize) -> Option<u64> {
        match self.by_depth.get(depth) {
            Some(cost) => Some(*cost),
            None if self.settled => self.by_depth.last().copied(),
            None => None,
        }
    }

    /// How deep validation may recurse in arguments that deep.
    pub(super) fn stack(&self, depth: usize) -> usize {
        let depth = if self.settled { depth.min(self.by_depth.len()) } else { depth };
        self.chain * (depth + 1)
    }
}

// === impl Graph ===

impl<'s> Graph<'s> {
    fn new(schema: &'s Value, index: &'s Index<'s>) -> Result<Self, String> {
        let mut graph = Self { index, nodes: Vec::new(), seen: HashMap::new(), todo: Vec::new() };
        graph.node(schema);
        while let Some(next) = graph.todo.pop() {
            graph.read(next)?;
        }
        Ok(graph)
    }

    fn node(&mut self, schema: &'s Value) -> usize {
        let place = std::ptr::from_ref(schema);
        if let Some(known) = self.seen.get(&place) {
            return *known;
        }
        self.nodes.push(Node { weight: 1, ..Node::default() });
        self.seen.insert(place, self.nodes.len() - 1);
        self.todo.push(schema);
        self.nodes.len() - 1
    }

    fn read(&mut self, schema: &'s Value) -> Result<(), String> {
        let at = self.node(schema);
        let Some(keywords) = schema.as_object() else {
            return Ok(());
        };
        let mut node = Node { weight: 1, ..Node::default() };
        for (keyword, value) in keywords {
            match keyword.as_str() {
                "allOf" | "anyOf" | "oneOf" => node.same.extend(self.all(value)),
                "not" | "if" | "then" | "else" => node.same.push(self.node(value)),
                "dependentSchemas" | "dependencies" => node.same.extend(self.values(value)),
                "$ref" | "$dynamicRef" | "$recursiveRef" => {
                    let Some(reference) = value.as_str() else { continue };
                    let targets = self.index.targets(schema, keyword, reference)?;
                    if targets.is_empty() {
                        node.weight += BUILT_IN;
                    }
                    for target in targets {
                        node.same.push(self.node(target));
                    }
                }
                "properties" => {
                    node.weight += value.as_object().map_or(0, |v| v.len() as u64);
                    node.members.push(self.values(value));
                }
                "patternProperties" => {
                    let each = self.values(value);
                    node.weight += each.len() as u64;
                    node.members.extend(each.into_iter().map(|one| vec![one]));
                }
                "additionalProperties" | "propertyNames" => node.members.push(vec![self.node(value)]),
                "unevaluatedProperties" => {
                    node.members.push(vec![self.node(value)]);
                    node.twice = true;
                }
                "unevaluatedItems" => {
                    node.items.push(vec![self.node(value)]);
                    node.twice = true;
                }
                "items" if value.is_array() => node.items.push(self.all(value)),
                "items" | "additionalItems" | "contains" => node.items.push(vec![self.node(value)]),
                "prefixItems" => node.items.push(self.all(value)),
                "enum" | "required" => node.weight += value.as_array().map_or(0, |v| v.len() as u64),
                _ => {}
            }
        }
        self.nodes[at] = node;
        Ok(())
    }

    fn all(&mut self, list: &'s Value) -> Vec<usize> {
        list.as_array().into_iter().flatten().map(|one| self.node(one)).collect()
    }

    /// The schemas in a map; what is no schema (a list of names in `dependencies`) is passed over.
    fn values(&mut self, map: &'s Value) -> Vec<usize> {
        let schemas = map.as_object().into_iter().flat_map(|m| m.values());
        schemas.filter(|v| v.is_object() || v.is_boolean()).map(|one| self.node(one)).collect()
    }

    /// Every node after those it leads to without going down, and the longest such chain. A loop is an error.
    fn order(&self) -> Result<(Vec<usize>, usize), String> {
        let mut chain: Vec<usize> = vec![0; self.nodes.len()];
        let mut open = vec![false; self.nodes.len()];
        let mut order = Vec::with_capacity(self.nodes.len());
        for start in 0..self.nodes.len() {
            let mut path = vec![(start, 0)];
            while let Some((node, next)) = path.last_mut() {
                let node = *node;
                if chain[node] > 0 {
                    path.pop();
                    continue;
                }
                open[node] = true;
                if let Some(&child) = self.nodes[node].same.get(*next) {
                    *next += 1;
                    if open[child] {
                        return Err("it refers to itself without an end, so it says nothing".into());
                    }
                    if chain[child] == 0 {
                        path.push((child, 0));
                    }
                    continue;
                }
                let longest = self.nodes[node].same.iter().map(|c| chain[*c]).max().unwrap_or(0);
                chain[node] = longest + 1;
                open[node] = false;
                order.push(node);
                path.pop();
            }
        }
        let longest = chain.iter().copied().max().unwrap_or(0);
        if longest > CHAIN_MAX {
            return Err(format!(
                "its references form too long a chain ({longest}, the limit is {CHAIN_MAX})"
            ));
        }
        Ok((order, longest))
    }

    /// The cost at the root for each depth of the arguments, as far as it is bearable.
    fn cost(&self, order: &[usize], chain: usize) -> Cost {
        let mut by_depth = Vec::new();
        // The dearer of the two kinds of container, one level further down.
        let mut below: Vec<u64> = vec![0; self.nodes.len()];
        for _ in 0..DEPTHS {
            let of_object = self.level(order, &below, |node| &node.members);
            let of_array = self.level(order, &below, |node| &node.items);
            let here: Vec<u64> = of_object.iter().zip(&of_array).map(|(o, a)| *o.max(a)).collect();
            if here.first().is_none_or(|root| *root > WORK_MAX) {
                return Cost { by_depth, settled: false, chain };
            }
            if here == below {
                return Cost { by_depth, settled: true, chain };
            }
            by_depth.push(here[0]);
            below = here;
        }
        Cost { by_depth, settled: true, chain }
    }

    fn level(&self, order: &[usize], below: &[u64], groups: impl Fn(&Node) -> &Vec<Vec<usize>>) -> Vec<u64> {
        let mut cost = vec![0u64; self.nodes.len()];
        for &at in order {
            let node = &self.nodes[at];
            let same = node.same.iter().fold(0u64, |sum, c| sum.saturating_add(cost[*c]));
            let same = if node.twice { same.saturating_mul(2) } else { same };
            let dearest = |group: &Vec<usize>| group.iter().map(|c| below[*c]).max().unwrap_or(0);
            let down = groups(node).iter().fold(0u64, |sum, group| sum.saturating_add(dearest(group)));
            cost[at] = node.weight.saturating_add(same).saturating_add(down);
        }
        cost
    }
}
