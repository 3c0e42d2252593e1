//! What servers say, in the words of the legacy era.
//!
//! In: a result or an error as it came. Out: the same without what only the modern era knows.

use serde_json::json;

use crate::mcp::{code, meta, method};
use crate::wire::{Json, Members, Pieces, RpcError, response_result};

/// An error in the words of this era. What a modern server calls a missing capability is no code that it knows.
pub(super) fn in_this_era(method: &str, error: RpcError) -> RpcError {
    let names_resource = || error.data.as_ref().is_some_and(|data| data.member("uri").is_some());
    let code = match error.code {
        number if code::is_modern(number) => code::INVALID_REQUEST,
        // In the modern era a resource that is not there is a bad parameter that says which.
        code::INVALID_PARAMS if method == method::RESOURCES_READ && names_resource() => code::NO_RESOURCE,
        number => number,
    };
    RpcError { code, ..error }
}

/// The answer with a result without the words of the modern era, without what a server says of itself to us, and without
/// structured values that this era has not.
pub(super) fn undressed(id: &Json, result: &Json) -> Pieces {
    const MODERN: [&str; 3] = ["resultType", "ttlMs", "cacheScope"];
    if !result.is_object() {
        return response_result(id, result).into();
    }
    let (nothing, mut last) = (Members::default(), Members::default());
    let [told, structured] = result.peek(["_meta", "structuredContent"]);
    let told = told.and_then(|_| result.member("_meta"));
    let told = told.filter(|told| told.member(meta::SERVER_INFO).is_some());
    // Here it is an object or nothing.
    let other = structured.filter(|value| !value.starts_with(b"{"));
    if told.is_none() && other.is_none() {
        return Pieces::response(id, result, &MODERN, (&nothing, &last));
    }
    let mut left_out = MODERN.to_vec();
    if let Some(told) = told {
        left_out.push("_meta");
        let mut rest = Members::default();
        rest.append_without(&told, &[meta::SERVER_INFO]);
        if !rest.is_empty() {
            last.object("_meta", &rest);
        }
    }
    if let Some(other) = other {
        left_out.push("structuredContent");
        // A server should have said it in words, too; if it has not, it is said so.
        if result.member("content").is_none_or(|content| content.as_str() == "[]") {
            left_out.push("content");
            let text = String::from_utf8_lossy(other);
            last.json("content", &Json::of(&json!([{ "type": "text", "text": text }])));
        }
    }
    Pieces::response(id, result, &left_out, (&nothing, &last))
}
