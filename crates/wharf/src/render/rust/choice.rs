//! One of several: `enum`, `const`, `anyOf`, `oneOf`.
//!
//! In: the alternatives. Out: an enum, an `Option`, or the one type that they share. A result that could be read as a
//! wrong alternative, and so lose something, is left as a plain value instead.

use serde_json::Value;

use super::ident::pascal;
use super::read::{Place, Reader, Side};
use super::shape::{Field, Kind, Type};

/// The most words or alternatives that become an enum.
const MAX: usize = 200;

impl Reader<'_> {
    /// `enum` and `const`.
    pub(super) fn enumeration(&mut self, values: &[Value], schema: &Value, place: &Place<'_>) -> Type {
        let has_null = values.iter().any(Value::is_null);
        let values: Vec<&Value> = values.iter().filter(|value| !value.is_null()).collect();
        let all = |is: fn(&Value) -> bool| values.iter().all(|value| is(value));
        let of = if values.is_empty() {
            if !has_null {
                return self.any(place, "an `enum` without values allows nothing");
            }
            return Type::Null;
        } else if all(Value::is_string) {
            let words = values.iter().filter_map(|value| value.as_str()).map(str::to_owned).collect();
            self.words(words, schema, place)
        } else if all(Value::is_boolean) {
            Type::Bool
        } else if all(Value::is_i64) {
            Type::Integer
        } else if all(Value::is_number) {
            Type::Number
        } else {
            self.any(place, "an `enum` of several kinds of value has no type")
        };
        if has_null { of.or_null() } else { of }
    }

    fn words(&mut self, words: Vec<String>, schema: &Value, place: &Place<'_>) -> Type {
        let mut distinct: Vec<String> = Vec::new();
        for word in words {
            if !distinct.contains(&word) {
                distinct.push(word);
            }
        }
        if distinct.len() > MAX {
            self.note(&place.path, format!("an `enum` of more than {MAX} texts is any text"));
            return Type::Text;
        }
        Type::Named(self.reserve(schema, place, Kind::Words(distinct)))
    }

    /// `anyOf` and `oneOf`.
    pub(super) fn choice<'s>(&mut self, schema: &'s Value, branches: &'s [Value], place: &Place<'s>) -> Type {
        if branches.len() > MAX {
            return self.any(place, format!("a choice of more than {MAX} has no type"));
        }
        let is_null = |branch: &&Value| branch.get("type").is_some_and(|t| t == "null");
        let has_null = branches.iter().any(|branch| is_null(&branch));
        let others: Vec<&'s Value> = branches.iter().filter(|branch| !is_null(branch)).collect();
        let words: Vec<Vec<String>> = others.iter().map_while(|branch| words_of(branch)).collect();
        let of = match &others[..] {
            [] if has_null => return Type::Null,
            [] => Type::Any,
            [one] => self.read(one, &place.deeper()),
            _ if words.len() == others.len() => self.words(words.concat(), schema, place),
            _ => {
                let item = self.reserve(schema, place, Kind::Choice(Vec::new()));
                let parts =
                    others.iter().enumerate().map(|(n, branch)| self.branch(branch, n, place)).collect();
                self.one_of(parts, item, place)
            }
        };
        if has_null { of.or_null() } else { of }
    }

    /// An alternative with the name that it would like.
    fn branch<'s>(&mut self, branch: &'s Value, number: usize, place: &Place<'s>) -> (String, Type) {
        let reference = branch.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next());
        let said =
            reference.or_else(|| tag_of(branch)).or_else(|| branch.get("title").and_then(Value::as_str));
        let name = pascal(said.unwrap_or_default());
        let inner = if name.is_empty() { format!("{}", number + 1) } else { name.clone() };
        let mut here = place.named(format!("{}{inner}", place.name));
        here.path = format!("{}|{}", place.path, number + 1);
        (name, self.read(branch, &here))
    }

    /// One of these types, as this item if it takes one; the wishes for names may be empty.
    pub(super) fn one_of(&mut self, parts: Vec<(String, Type)>, item: usize, place: &Place<'_>) -> Type {
        let mut distinct: Vec<(String, Type)> = Vec::new();
        let (mut has_null, mut has_any) = (false, false);
        for (name, of) in parts {
            let of = match of {
                Type::Maybe(of) => {
                    has_null = true;
                    *of
                }
                of => of,
            };
            match of {
                Type::Any => has_any = true,
                Type::Null => has_null = true,
                of if distinct.iter().any(|(_, known)| *known == of) => {}
                of => distinct.push((name, of)),
            }
        }
        distinct.sort_by_key(|(_, of)| std::cmp::Reverse(self.narrowness(of)));
        let of = if has_any {
            Type::Any
        } else if self.side == Side::Result && !self.can_be_told_apart(&distinct) {
            self.any(place, "its alternatives cannot be told apart for certain")
        } else {
            match &distinct[..] {
                [] => Type::Null,
                [(_, one)] => one.clone(),
                _ => Type::Named(item),
            }
        };
        // Where it comes to something simpler, what lies within it may still refer to the item.
        let variants = if of == Type::Named(item) { distinct } else { vec![(String::new(), of.clone())] };
        let named = variants.into_iter().map(|(name, of)| (self.variant(name, &of), of)).collect();
        self.module.items[item].kind = Kind::Choice(named);
        if has_null { of.or_null() } else { of }
    }

    fn variant(&self, name: String, of: &Type) -> String {
        let kind = match of {
            Type::Any => "Any",
            Type::Null => "Null",
            Type::Bool => "Flag",
            Type::Integer | Type::Unsigned => "Integer",
            Type::Number => "Number",
            Type::Text => "Text",
            Type::List(_) => "List",
            Type::Tuple(_) => "Tuple",
            Type::Map(_) => "Map",
            Type::Maybe(_) => "Maybe",
            Type::Named(item) => match self.module.items[*item].kind {
                Kind::Struct { .. } => "Object",
                Kind::Words(_) => "Word",
                Kind::Choice(_) => "Choice",
            },
        };
        if name.is_empty() { kind.to_owned() } else { name }
    }

    /// How early a type is tried: a text is also of its words' kind, a whole number also a number.
    fn narrowness(&self, of: &Type) -> usize {
        match of {
            // A struct can also be read from a list, and a word from an object.
            Type::Tuple(_) | Type::List(_) => 1_000_000,
            Type::Named(item) => match &self.module.items[*item].kind {
                Kind::Struct { fields, .. } => 1000 + fields.iter().filter(|field| field.required).count(),
                Kind::Words(_) => 10,
                Kind::Choice(_) => 9,
            },
            Type::Map(_) => 20,
            Type::Unsigned => 8,
            Type::Integer => 7,
            _ => 1,
        }
    }

    /// Whether each value fits the first of these types that takes it, and no earlier one by mistake.
    fn can_be_told_apart(&self, parts: &[(String, Type)]) -> bool {
        parts
            .iter()
            .enumerate()
            .all(|(n, (_, later))| parts[..n].iter().all(|(_, earlier)| self.is_apart(earlier, later)))
    }

    fn is_apart(&self, earlier: &Type, later: &Type) -> bool {
        let is_whole = |of: &Type| matches!(of, Type::Integer | Type::Unsigned);
        match (earlier, later) {
            (Type::List(a), Type::List(b)) => self.is_apart(a, b),
            (Type::Integer | Type::Unsigned, later) if is_whole(later) || *later == Type::Number => true,
            (Type::Named(a), Type::Named(b)) => {
                match (&self.module.items[*a].kind, &self.module.items[*b].kind) {
                    (Kind::Struct { fields: a, .. }, Kind::Struct { fields: b, rest, .. }) => {
                        self.structs_apart(a, b, rest.is_some())
                    }
                    (Kind::Words(_), Kind::Words(_)) => true,
                    _ => self.kinds(earlier) & self.kinds(later) == 0,
                }
            }
            (Type::Named(a), Type::Text) if matches!(self.module.items[*a].kind, Kind::Words(_)) => true,
            _ => self.kinds(earlier) & self.kinds(later) == 0,
        }
    }

    /// The earlier one asks for a member that the later one does not know, or a member's words differ.
    fn structs_apart(&self, earlier: &[Field], later: &[Field], later_has_more: bool) -> bool {
        let words = |of: &Type| match of {
            Type::Named(item) => match &self.module.items[*item].kind {
                Kind::Words(words) => Some(words),
                _ => None,
            },
            _ => None,
        };
        earlier.iter().filter(|field| field.required).any(|field| {
            match later.iter().find(|other| other.key == field.key) {
                None => !later_has_more,
                Some(other) => match (words(&field.of), words(&other.of)) {
                    (Some(a), Some(b)) => other.required && !a.iter().any(|word| b.contains(word)),
                    _ => false,
                },
            }
        })
    }

    /// The kinds of JSON value that a type takes, one bit each.
    fn kinds(&self, of: &Type) -> u8 {
        match of {
            Type::Any => 0xff,
            Type::Null => 1,
            Type::Bool => 2,
            Type::Integer | Type::Unsigned | Type::Number => 4,
            Type::Text => 8,
            Type::List(_) | Type::Tuple(_) => 16,
            Type::Map(_) => 32,
            Type::Maybe(of) => 1 | self.kinds(of),
            Type::Named(item) => match &self.module.items[*item].kind {
                Kind::Struct { .. } => 32,
                Kind::Words(_) => 8,
                Kind::Choice(_) => 0xff,
            },
        }
    }
}

/// The texts of an alternative that is nothing but texts.
fn words_of(branch: &Value) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    match (branch.get("const"), branch.get("enum")) {
        (Some(word), _) => Some(vec![text(word)?]),
        (None, Some(Value::Array(words))) if !words.is_empty() => words.iter().map(text).collect(),
        _ => None,
    }
}

/// The text by which an object tells what it is: `{"kind": {"const": "circle"}}`.
fn tag_of(branch: &Value) -> Option<&str> {
    let properties = branch.get("properties")?.as_object()?;
    properties.values().find_map(|property| match (property.get("const"), property.get("enum")) {
        (Some(word), _) => word.as_str(),
        (None, Some(Value::Array(words))) if words.len() == 1 => words[0].as_str(),
        _ => None,
    })
}
