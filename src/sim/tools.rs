//! Tools as Ollama understands and prints them.
//!
//! Ollama reads a tool into a struct with few fields and prints that struct into the prompt, so most of
//! what a client wrote about a tool never reaches the model. This file keeps and orders the same fields.
//! It does not validate schemas.

use serde_json::{Map, Value, json};

use super::go_json::{self, Object};
use super::refusal::Refusal;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Tool {
    pub(super) name: String,
    /// The line that the template prints.
    pub(super) printed: String,
    /// Arguments that a call has to give.
    pub(super) required: Vec<String>,
}

impl Tool {
    /// Reads a tool in the native form, which is OpenAI's chat form as well.
    pub(super) fn from_native(value: &Value) -> Result<Self, Refusal> {
        let tool = go_json::object(value, "ChatRequest", "tools", "api.Tool")?;
        let function = go_json::field(tool, "function").and_then(Value::as_object).cloned().unwrap_or_default();
        let kind = go_json::text(tool, "type", "Tool.tools")?;
        Self::from_parts(&kind, &function, go_json::field(&function, "parameters"))
    }

    /// Reads a tool whose name and schema are where the dialect has them.
    pub(super) fn from_parts(kind: &str, function: &Object, schema: Option<&Value>) -> Result<Self, Refusal> {
        let name = go_json::text(function, "name", "ToolFunction.tools.function")?;
        let description = go_json::text(function, "description", "ToolFunction.tools.function")?;
        let schema = schema.and_then(Value::as_object).cloned().unwrap_or_default();
        let required: Vec<String> = go_json::field(&schema, "required")
            .and_then(Value::as_array)
            .map(|names| names.iter().filter_map(Value::as_str).map(str::to_owned).collect())
            .unwrap_or_default();
        let printed = go_json::encode(&json!({
            "type": kind,
            "function": {"name": name, "description": description, "parameters": parameters(&schema, &required)},
        }));
        Ok(Self { name, printed, required })
    }
}

fn parameters(schema: &Object, required: &[String]) -> Value {
    let mut out = Map::new();
    out.insert("type".to_owned(), go_json::field(schema, "type").cloned().unwrap_or_else(|| json!("")));
    for name in ["$defs", "items"] {
        if let Some(value) = go_json::field(schema, name) {
            out.insert(name.to_owned(), sorted(value));
        }
    }
    if !required.is_empty() {
        out.insert("required".to_owned(), json!(required));
    }
    out.insert("properties".to_owned(), properties(schema).unwrap_or(Value::Null));
    Value::Object(out)
}

fn properties(schema: &Object) -> Option<Value> {
    let properties = go_json::field(schema, "properties")?.as_object()?;
    let mut named: Vec<_> = properties.iter().collect();
    named.sort_by_key(|(name, _)| *name);
    Some(named.into_iter().map(|(name, value)| (name.clone(), property(value))).collect::<Map<_, _>>().into())
}

/// One property with the fields of Ollama's struct, in its order.
fn property(value: &Value) -> Value {
    let Some(given) = value.as_object() else { return json!({}) };
    let mut out = Map::new();
    if let Some(Value::Array(choices)) = go_json::field(given, "anyOf") {
        out.insert("anyOf".to_owned(), choices.iter().map(property).collect());
    }
    match go_json::field(given, "type") {
        Some(Value::Array(types)) if types.len() == 1 => out.insert("type".to_owned(), types[0].clone()),
        Some(other) => out.insert("type".to_owned(), other.clone()),
        None => None,
    };
    for name in ["items", "description", "enum"] {
        if let Some(value) = go_json::field(given, name) {
            out.insert(name.to_owned(), sorted(value));
        }
    }
    if let Some(nested) = properties(given) {
        out.insert("properties".to_owned(), nested);
    }
    Value::Object(out)
}

/// A value as it looks after passing through a Go map: all keys in alphabetical order.
pub(super) fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<_> = object.iter().collect();
            fields.sort_by_key(|(name, _)| *name);
            fields.into_iter().map(|(name, value)| (name.clone(), sorted(value))).collect::<Map<_, _>>().into()
        }
        Value::Array(list) => list.iter().map(sorted).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_is_printed_with_the_fields_ollama_keeps() {
        let tool = Tool::from_native(&json!({"type": "function", "strict": true, "function": {
            "name": "weather", "parameters": {"additionalProperties": false, "type": "object", "required": ["city"],
                "properties": {"unit": {"enum": ["C", "F"], "type": ["string"]}, "city": {"description": "a <city>", "type": "string"}}},
        }}))
        .expect("a tool");
        assert_eq!(
            tool.printed,
            r#"{"type":"function","function":{"name":"weather","description":"","parameters":{"type":"object","required":["city"],"properties":{"city":{"type":"string","description":"a \u003ccity\u003e"},"unit":{"type":"string","enum":["C","F"]}}}}}"#
        );
    }
}
