//! What a schema says, as far as Rust types can say it: the model between reading and writing. It knows neither JSON
//! Schema nor Rust's spelling, and its names are wishes until `write` gives them out.

use std::collections::HashSet;

use crate::mcp::Tool;
use crate::names::ToolName;

/// A whole module.
#[derive(Debug, Default)]
pub(super) struct Module {
    /// Every type that has a name, parents first.
    pub(super) items: Vec<Item>,
    /// One function a tool.
    pub(super) functions: Vec<Function>,
}

/// How a tool is called.
#[derive(Debug)]
pub(super) struct Function {
    pub(super) tool: Tool,
    /// Its arguments; `None` if it takes none.
    pub(super) takes: Option<Type>,
    /// Its structured result; `None` if it promises none.
    pub(super) gives: Option<Type>,
}

/// A type.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Type {
    Any,
    Null,
    Bool,
    Integer,
    Unsigned,
    Number,
    Text,
    List(Box<Self>),
    Map(Box<Self>),
    Tuple(Vec<Self>),
    Maybe(Box<Self>),
    /// One with a name: its place in [`Module::items`].
    Named(usize),
}

/// A type with a name.
#[derive(Debug)]
pub(super) struct Item {
    /// The name it would like.
    pub(super) hint: String,
    /// Whose it is.
    pub(super) tool: ToolName,
    /// Where it stands: `arguments.filter`.
    pub(super) place: String,
    /// What the server says about it.
    pub(super) description: Option<String>,
    pub(super) kind: Kind,
}

/// What a type with a name is.
#[derive(Debug)]
pub(super) enum Kind {
    Struct {
        fields: Vec<Field>,
        /// No other members are allowed.
        closed: bool,
        /// The type of members without a name.
        rest: Option<Type>,
    },
    /// One of these texts.
    Words(Vec<String>),
    /// One of these types: a name that is wished for, and the type.
    Choice(Vec<(String, Type)>),
}

/// A member of an object.
#[derive(Debug)]
pub(super) struct Field {
    /// Its name in JSON.
    pub(super) key: String,
    pub(super) required: bool,
    pub(super) of: Type,
    /// What the server says about it.
    pub(super) description: Option<String>,
    /// What else the schema says: format, default.
    pub(super) facts: Vec<String>,
}

// === impl Module ===

impl Module {
    /// The items that functions use, in order. What was read and then given up is not among them.
    pub(super) fn used(&self) -> Vec<usize> {
        let mut used = HashSet::new();
        let roots = self.functions.iter().flat_map(|f| f.takes.iter().chain(&f.gives));
        let mut open: Vec<usize> = roots.flat_map(Type::named).collect();
        while let Some(item) = open.pop() {
            if used.insert(item) {
                open.extend(self.items[item].types().flat_map(Type::named));
            }
        }
        let mut used: Vec<usize> = used.into_iter().collect();
        used.sort_unstable();
        used
    }

    /// Whether a value of one item would hold a value of another within itself, so that it had no size.
    pub(super) fn holds(&self, outer: usize, inner: usize) -> bool {
        let (mut seen, mut open) = (HashSet::new(), vec![outer]);
        while let Some(item) = open.pop() {
            if item == inner {
                return true;
            }
            if seen.insert(item) {
                open.extend(self.items[item].members().flat_map(Type::held));
            }
        }
        false
    }

    /// Whether a type has a value to begin with.
    pub(super) fn has_default(&self, of: &Type) -> bool {
        self.defaults(of, &mut Vec::new())
    }

    fn defaults(&self, of: &Type, within: &mut Vec<usize>) -> bool {
        match of {
            Type::Tuple(parts) => parts.iter().all(|part| self.defaults(part, within)),
            Type::Named(item) if within.contains(item) => false,
            Type::Named(item) => {
                within.push(*item);
                let has = match &self.items[*item].kind {
                    Kind::Struct { fields, .. } => {
                        fields.iter().all(|field| !field.required || self.defaults(&field.of, within))
                    }
                    Kind::Words(words) => words.len() == 1,
                    Kind::Choice(_) => false,
                };
                within.pop();
                has
            }
            _ => true,
        }
    }
}

// === impl Item ===

impl Item {
    /// Every type in it.
    fn types(&self) -> impl Iterator<Item = &Type> {
        let rest = match &self.kind {
            Kind::Struct { rest, .. } => rest.as_ref(),
            _ => None,
        };
        self.members().chain(rest)
    }

    /// The types of its named members or its alternatives; the rest of an object lies in a map.
    fn members(&self) -> impl Iterator<Item = &Type> {
        let (fields, choice) = match &self.kind {
            Kind::Struct { fields, .. } => (&fields[..], &[][..]),
            Kind::Words(_) => (&[][..], &[][..]),
            Kind::Choice(choice) => (&[][..], &choice[..]),
        };
        fields.iter().map(|field| &field.of).chain(choice.iter().map(|(_, of)| of))
    }
}

// === impl Type ===

impl Type {
    /// The items that it names, wherever.
    pub(super) fn named(&self) -> Vec<usize> {
        match self {
            Self::Named(item) => vec![*item],
            Self::List(of) | Self::Map(of) | Self::Maybe(of) => of.named(),
            Self::Tuple(parts) => parts.iter().flat_map(Self::named).collect(),
            _ => Vec::new(),
        }
    }

    /// The items that a value of it holds within itself, not behind a pointer.
    fn held(&self) -> Vec<usize> {
        match self {
            Self::Named(item) => vec![*item],
            Self::Maybe(of) => of.held(),
            Self::Tuple(parts) => parts.iter().flat_map(Self::held).collect(),
            _ => Vec::new(),
        }
    }
}
