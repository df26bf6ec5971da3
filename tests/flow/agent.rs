//! An agent's steps: no two tool calls are alike, and still nothing has to be asked about how they are rendered.

use loadline::sim::{SimConfig, SimModel};
use serde_json::{Value, json};

use crate::stage::{MODEL, Stage};

fn tool() -> Value {
    json!({ "type": "function", "function": { "name": "read_log", "description": "a night's log", "parameters": { "type": "object", "properties": { "night": { "type": "integer" }, "from": { "type": "string" } } } } })
}

/// One exchange of a step. Arguments of several kinds: in order and not, short, and such as Go writes in its own way.
fn exchange(step: usize, thinking: &str) -> [Value; 2] {
    let arguments = match step % 4 {
        0 => json!({ "night": step * 37, "from": format!("harbour {step}") }),
        1 => json!({ "from": format!("the \"old\" pier\n{step}"), "night": step }),
        2 => json!({}),
        _ => json!({ "from": format!("<{step}> & more"), "night": 1.5 }),
    };
    let id = format!("call_{:08x}", step * 7919);
    let call = json!({ "id": id, "function": { "name": "read_log", "arguments": arguments } });
    let said = if step.is_multiple_of(3) { format!("I will look at night number {step} now.") } else { String::new() };
    [
        json!({ "role": "assistant", "content": said, "thinking": thinking, "tool_calls": [call] }),
        json!({ "role": "tool", "tool_name": "read_log", "tool_call_id": id, "content": format!("night {step}: nothing to report") }),
    ]
}

/// Steps through a conversation; how many renderings each step has asked for.
async fn renderings_by_step(thinks: bool, steps: usize) -> Vec<usize> {
    let model = SimModel { tools: true, thinking: thinks, ..MODEL.clone() };
    let stage = Stage::with(SimConfig { models: vec![model], ..SimConfig::default() }, &[]).await;
    let mut messages = vec![
        json!({ "role": "system", "content": "You keep the log of a harbour." }),
        json!({ "role": "user", "content": "Which nights was the gate open?" }),
    ];
    let asked = || {
        stage.sim.log().iter().filter(|seen| String::from_utf8_lossy(&seen.body).contains("_debug_render_only")).count()
    };
    let mut by_step = Vec::new();
    for step in 0..steps {
        let before = asked();
        let body = json!({ "model": "sim", "stream": false, "messages": messages, "tools": [tool()], "options": { "num_ctx": 8192, "num_predict": 4 } });
        let got = stage.post("/api/chat", body.to_string()).await;
        assert_eq!((got.status, got.header("x-loadline-basis")), (200, "exact"), "step {step}: {}", got.text);
        assert_eq!(got.json()["prompt_eval_count"], got.tokens().0, "step {step}");
        by_step.push(asked() - before);
        let thinking =
            if thinks { format!("Step {step}: the gate may have been open all night.") } else { String::new() };
        messages.extend(exchange(step, &thinking));
    }
    assert_eq!(stage.gateway.metrics.exact_mismatches(), 0);
    by_step
}

#[tokio::test]
async fn a_step_of_a_kind_seen_before_is_counted_without_asking() {
    for thinks in [false, true] {
        let asked = renderings_by_step(thinks, 40).await;
        // A call with characters that Go escapes is rendered by the upstream: while it is the newest, and once when
        // it is no longer. The others are not.
        let later: Vec<usize> =
            (20..40).filter(|step| step % 4 == 2 || step % 4 == 3).map(|step| asked[step]).collect();
        assert!(later.iter().all(|asked| *asked == 0), "thinks: {thinks}, renderings by step: {asked:?}");
    }
}
