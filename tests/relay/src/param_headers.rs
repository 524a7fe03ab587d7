//! `Mcp-Param-<Name>` headers: an input whose schema carries `x-mcp-header` is mirrored in a header, and the
//! relay refuses a call in which the two differ (MCP 2026-07-28, Streamable HTTP).

use crate::mcp::decode_header;
use crate::request::Request;
use serde_json::Value;

/// Checks every annotated input of a call against its header.
pub(crate) fn check(schema: &Value, arguments: &str, request: &Request) -> Result<(), String> {
    let Some(properties) = annotated(schema) else { return Ok(()) };
    let arguments: Value = serde_json::from_str(arguments).unwrap_or(Value::Null);
    walk(properties, &arguments, request)
}

/// The properties of a schema in which the annotation occurs at all.
fn annotated(schema: &Value) -> Option<&Value> {
    let properties = schema.get("properties")?;
    let any = |properties: &Value| {
        properties.as_object().is_some_and(|map| {
            map.values()
                .any(|property| property.get("x-mcp-header").is_some() || annotated(property).is_some())
        })
    };
    any(properties).then_some(properties)
}

fn walk(properties: &Value, arguments: &Value, request: &Request) -> Result<(), String> {
    for (name, property) in properties.as_object().into_iter().flatten() {
        let argument = arguments.get(name).unwrap_or(&Value::Null);
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            let header = format!("Mcp-Param-{header}");
            let sent = request.header(&header).map(|value| decode_header(value).unwrap_or_default());
            if sent != expected(argument) {
                return Err(format!("{header} differs from the argument {name}"));
            }
        }
        if let Some(inner) = property.get("properties") {
            walk(inner, argument, request)?;
        }
    }
    Ok(())
}

/// What the header must say; `None` where it must be absent.
fn expected(argument: &Value) -> Option<String> {
    match argument {
        Value::String(text) => Some(text.clone()),
        Value::Bool(flag) => Some(flag.to_string()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}
