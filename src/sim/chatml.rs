//! ChatML: the template that the simulator's models publish, and what it makes of messages.
//!
//! The two are kept side by side because they must agree: [`template`] is the Go text that `/api/show`
//! tells, [`render`] is what executing it would give. A plain model has exactly the template that was
//! recorded from a real SmolLM2. Other templates are not understood; requests cannot override it.

use super::SimModel;
use super::go_json;
use super::request::Message;
use super::tools::{Tool, sorted};

const THINKING: &str = "{{ if .Thinking }}<think>{{ .Thinking }}</think>\n{{ end }}";

/// The Go template of a model.
pub(super) fn template(model: &SimModel) -> String {
    let thinking = if model.thinking { THINKING } else { "" };
    if !model.tools {
        return format!(
            "{{{{- range .Messages }}}}<|im_start|>{{{{ .Role }}}}\n{thinking}{{{{ .Content }}}}<|im_end|>\n\
             {{{{ end }}}}<|im_start|>assistant\n"
        );
    }
    let head = "{{ if or .System .Tools }}<|im_start|>system\n{{ .System }}{{ if .Tools }}\n\nTools:\n\
                {{ range .Tools }}{{ . }}\n{{ end }}{{ end }}<|im_end|>\n{{ end }}";
    let calls = "{{ range .ToolCalls }}\n<tool_call>{\"name\":\"{{ .Function.Name }}\",\
                 \"arguments\":{{ .Function.Arguments }}}</tool_call>{{ end }}";
    format!(
        "{head}{{{{ range .Messages }}}}{{{{ if ne .Role \"system\" }}}}<|im_start|>{{{{ .Role }}}}\n{thinking}\
         {{{{ .Content }}}}{calls}<|im_end|>\n{{{{ end }}}}{{{{ end }}}}<|im_start|>assistant\n"
    )
}

/// What the template makes of messages, up to the point where the answer begins.
pub(super) fn render(model: &SimModel, messages: &[Message], tools: &[Tool]) -> String {
    let collated = collate(messages);
    let mut out = String::with_capacity(messages.iter().map(|message| message.content.len() + 32).sum::<usize>() + 64);
    if model.tools {
        render_system_and_tools(messages, tools, &mut out);
    }
    for message in collated.iter().filter(|message| !model.tools || message.first.role != "system") {
        render_message(model, message, &mut out);
    }
    out.push_str("<|im_start|>assistant\n");
    out
}

/// Consecutive messages of one role; only the first one's other fields survive.
struct Collated<'a> {
    first: &'a Message,
    contents: Vec<&'a str>,
}

fn collate(messages: &[Message]) -> Vec<Collated<'_>> {
    let mut collated: Vec<Collated<'_>> = Vec::with_capacity(messages.len());
    for message in messages {
        match collated.last_mut() {
            Some(last) if last.first.role == message.role && message.role != "tool" => {
                last.contents.push(&message.content)
            }
            _ => collated.push(Collated { first: message, contents: vec![&message.content] }),
        }
    }
    collated
}

fn render_system_and_tools(messages: &[Message], tools: &[Tool], out: &mut String) {
    let systems: Vec<&str> =
        messages.iter().filter(|message| message.role == "system").map(|message| message.content.as_str()).collect();
    let system = systems.join("\n\n");
    if system.is_empty() && tools.is_empty() {
        return;
    }
    out.push_str("<|im_start|>system\n");
    out.push_str(&system);
    if !tools.is_empty() {
        out.push_str("\n\nTools:\n");
        for tool in tools {
            out.push_str(&tool.printed);
            out.push('\n');
        }
    }
    out.push_str("<|im_end|>\n");
}

fn render_message(model: &SimModel, message: &Collated<'_>, out: &mut String) {
    out.push_str("<|im_start|>");
    out.push_str(&message.first.role);
    out.push('\n');
    if model.thinking && !message.first.thinking.is_empty() {
        out.push_str("<think>");
        out.push_str(&message.first.thinking);
        out.push_str("</think>\n");
    }
    for (index, content) in message.contents.iter().enumerate() {
        if index > 0 {
            out.push_str("\n\n");
        }
        out.push_str(content);
    }
    if model.tools {
        for call in &message.first.tool_calls {
            // Templates see the arguments as a Go map, which prints its keys sorted.
            let arguments = go_json::encode(&sorted(&call.arguments.clone().into()));
            out.push_str(&format!("\n<tool_call>{{\"name\":\"{}\",\"arguments\":{arguments}}}</tool_call>", call.name));
        }
    }
    out.push_str("<|im_end|>\n");
}
