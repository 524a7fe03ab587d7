//! What a tool takes: each input declared once, from which both the JSON schema that clients see and the check
//! of the arguments that arrive are made.

use crate::message::{Members, same_name};
use serde_json::{Map, Value, json};

/// One input of a tool.
pub(crate) struct Input {
    pub name: &'static str,
    pub form: Form,
    pub required: bool,
    pub about: &'static str,
}

/// The form of an input.
#[derive(Clone, Copy)]
pub(crate) enum Form {
    /// Any text.
    Text,
    /// Text of 1 to this many characters.
    Words(usize),
    /// 64 lower-case hex characters: an event id, a public key, a file's hash.
    Hex,
    /// An integer within these bounds.
    Integer(i64, i64),
    Flag,
    /// One of these texts.
    Choice(&'static [&'static str]),
    Texts,
    Hexes,
    Object,
    /// At most this many objects.
    Objects(usize),
}

/// An input that must be given.
pub(crate) const fn required(name: &'static str, form: Form, about: &'static str) -> Input {
    Input { name, form, required: true, about }
}

/// An input that may be left out.
pub(crate) const fn optional(name: &'static str, form: Form, about: &'static str) -> Input {
    Input { name, form, required: false, about }
}

/// The JSON schema of a tool's inputs; a write tool also takes the signed `event`.
pub(crate) fn schema(inputs: &[Input], writes: bool) -> Value {
    let mut properties = Map::new();
    for input in inputs {
        let mut property = input.form.schema();
        property["description"] = input.about.into();
        properties.insert(input.name.into(), property);
    }
    if writes {
        properties.insert(
            "event".into(),
            json!({"type": "object", "description": "The signed event, once the unsigned one was returned and signed."}),
        );
    }
    let mut schema = json!({"type": "object", "properties": properties});
    let required: Vec<&str> = inputs.iter().filter(|input| input.required).map(|input| input.name).collect();
    if !required.is_empty() {
        schema["required"] = json!(required);
    }
    schema
}

impl Form {
    fn schema(self) -> Value {
        let hex = json!({"type": "string", "pattern": "^[0-9a-f]{64}$"});
        match self {
            Form::Text => json!({"type": "string"}),
            Form::Words(max) => json!({"type": "string", "minLength": 1, "maxLength": max}),
            Form::Hex => hex,
            Form::Integer(min, max) => json!({"type": "integer", "minimum": min, "maximum": max}),
            Form::Flag => json!({"type": "boolean"}),
            Form::Choice(values) => json!({"type": "string", "enum": values}),
            Form::Texts => json!({"type": "array", "items": {"type": "string"}}),
            Form::Hexes => json!({"type": "array", "items": hex}),
            Form::Object => json!({"type": "object"}),
            Form::Objects(max) => json!({"type": "array", "maxItems": max, "items": {"type": "object"}}),
        }
    }

    fn fits(self, value: &Value) -> bool {
        let is_hex = |value: &Value| value.as_str().is_some_and(is_hex64);
        let all =
            |test: &dyn Fn(&Value) -> bool| value.as_array().is_some_and(|items| items.iter().all(test));
        match self {
            Form::Text => value.is_string(),
            Form::Words(max) => {
                value.as_str().is_some_and(|text| !text.is_empty() && text.chars().count() <= max)
            }
            Form::Hex => is_hex(value),
            // Numbers pass through float64 here, as in the field: 7.0 is an integer.
            Form::Integer(min, max) => {
                value.as_f64().is_some_and(|n| n.fract() == 0.0 && n >= min as f64 && n <= max as f64)
            }
            Form::Flag => value.is_boolean(),
            Form::Choice(values) => value.as_str().is_some_and(|text| values.contains(&text)),
            Form::Texts => all(&Value::is_string),
            Form::Hexes => all(&is_hex),
            Form::Object => value.is_object(),
            Form::Objects(max) => {
                all(&Value::is_object) && value.as_array().is_some_and(|items| items.len() <= max)
            }
        }
    }

    fn describe(self) -> String {
        match self {
            Form::Text => "a string".into(),
            Form::Words(max) => format!("a string of 1 to {max} characters"),
            Form::Hex => "64 lower-case hex characters".into(),
            Form::Integer(min, max) => format!("an integer from {min} to {max}"),
            Form::Flag => "a boolean".into(),
            Form::Choice(values) => format!("one of {}", values.join(", ")),
            Form::Texts => "an array of strings".into(),
            Form::Hexes => "an array of 64-character lower-case hex strings".into(),
            Form::Object => "an object".into(),
            Form::Objects(max) => format!("an array of at most {max} objects"),
        }
    }
}

pub(crate) fn is_hex64(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// The arguments of one call, checked against the tool's inputs.
#[derive(Default)]
pub(crate) struct Arguments {
    values: Map<String, Value>,
    /// The `event` argument of a write tool, as written.
    pub event: Option<String>,
}

impl Arguments {
    /// Reads and checks arguments. Names match without regard to case, the last one counts, unknown ones and
    /// nulls are ignored; with an `event`, the inputs needed for a template may be absent.
    pub fn read(text: &str, inputs: &[Input], writes: bool) -> Result<Arguments, String> {
        let members: Members =
            serde_json::from_str(text).map_err(|error| format!("the arguments cannot be read: {error}"))?;
        let mut arguments = Arguments::default();
        for (name, raw) in members.0 {
            if raw.get() == "null" {
                continue;
            }
            if writes && same_name(&name, "event") {
                arguments.event = Some(raw.get().to_owned());
            } else if let Some(input) = inputs.iter().find(|input| same_name(&name, input.name)) {
                let value: Value = serde_json::from_str(raw.get())
                    .map_err(|error| format!("argument {} cannot be read: {error}", input.name))?;
                if !input.form.fits(&value) {
                    return Err(format!("argument {} must be {}", input.name, input.form.describe()));
                }
                arguments.values.insert(input.name.into(), value);
            }
        }
        if arguments.event.is_none()
            && let Some(input) = inputs.iter().find(|i| i.required && !arguments.values.contains_key(i.name))
        {
            return Err(format!("argument {} is required: {}", input.name, input.form.describe()));
        }
        Ok(arguments)
    }

    /// A text argument.
    pub fn text(&self, name: &str) -> Option<&str> {
        self.values.get(name)?.as_str()
    }

    /// A text argument that the check has made sure of; empty if it was not declared as required.
    pub fn must(&self, name: &str) -> &str {
        self.text(name).unwrap_or_default()
    }

    pub fn integer(&self, name: &str) -> Option<i64> {
        Some(self.values.get(name)?.as_f64()? as i64)
    }

    pub fn flag(&self, name: &str) -> bool {
        self.values.get(name) == Some(&Value::Bool(true))
    }

    pub fn texts(&self, name: &str) -> Vec<&str> {
        let items = self.values.get(name).and_then(Value::as_array);
        items.map(|items| items.iter().filter_map(Value::as_str).collect()).unwrap_or_default()
    }

    pub fn value(&self, name: &str) -> Option<&Value> {
        self.values.get(name)
    }

    pub fn objects(&self, name: &str) -> &[Value] {
        self.values.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }
}
