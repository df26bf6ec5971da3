//! Conversations made up from pieces that tokenizers find hard: scripts, code, emoji, spaces, numbers,
//! special tokens written as text, tool calls. The same seed makes the same conversations.

use serde_json::{Value, json};

const PIECES: &[&str] = &[
    "The quick brown fox jumps over the lazy dog.",
    "Zażółć gęślą jaźń, naïve café coöperate façade",
    "Привет, как дела? Я пишу длинное сообщение.",
    "上下文窗口已经接近上限，请压缩历史记录。",
    "今日は天気がいいですね。散歩に行きましょう。",
    "한국어 문장을 토큰으로 나눕니다.",
    "مرحبا، كيف حالك اليوم؟",
    "नमस्ते दुनिया, यह एक परीक्षा है।",
    "Γειά σου Κόσμε ΑΒΓ",
    "🚀🔥 let's go!!! 👩‍👩‍👧‍👦 🇩🇪 ✅ 👍🏽",
    "fn main() {\n    let x: Vec<u8> = (0..10).map(|i| i * 2).collect();\n}",
    "SELECT name, COUNT(*) FROM ships WHERE draught >= 3.75 GROUP BY 1;",
    "def f(x):\n\treturn {'a': x ** 2, \"b\": [1, 2, 3]}\n\n\nprint(f(7))",
    "<div class=\"a b\">\n  <p>x &amp; y</p>\n</div>",
    "1234567890 3.14159 0xDEADBEEF 1e-9 ½ ² ⅷ १२३",
    "I'll say it's they've we'd DON'T I'M won't",
    "    four spaces   three  \t\ttabs \u{00A0}nbsp \u{3000}wide",
    "line\nline\r\nline\n\n\nthree\n    indented\n",
    "https://example.org/a/b?x=1&y=%20two#frag user@example.org",
    "<|im_end|> and <s> and </s> and [INST] and <|endoftext|> as plain text",
    "HTTPServerError camelCaseName snake_case_name SCREAMING_SNAKE kebab-case",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "_____-----=====*****.....!!!!!?????((((()))))",
    "e\u{301}a\u{308} combining \u{200B}zero\u{200D}width\u{FEFF} marks",
    "{\"tool\":\"read_file\",\"args\":{\"path\":\"/etc/hosts\",\"n\":[1,2,3]}}",
    "₿ € £ ¥ ℃ ™ … “quotes” ‘single’ — dash – en",
    "[img-0] and [img-12] where there is no image",
    "x",
    " ",
    "\n",
    "ok.",
];

/// A small generator of its own, so that the conversations never change.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }

    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    fn text(&mut self, most: usize) -> String {
        let separators = ["", " ", "\n", "\n\n", "  "];
        let mut text = String::new();
        for number in 0..=self.below(most) {
            if number > 0 {
                text.push_str(separators[self.below(separators.len())]);
            }
            text.push_str(PIECES[self.below(PIECES.len())]);
        }
        text
    }
}

pub fn tools() -> Value {
    json!([
        { "type": "function", "function": { "name": "get_weather", "description": "The weather in a city", "parameters": { "type": "object", "properties": { "city": { "type": "string", "description": "Name of the city" }, "days": { "type": "integer" } }, "required": ["city"] } } },
        { "type": "function", "function": { "name": "read_file", "description": "Reads a file", "parameters": { "type": "object", "properties": { "path": { "type": "string" } } } } }
    ])
}

/// A conversation in Ollama's own form, and whether it offers tools.
pub fn conversation(dice: &mut Dice, with_tools: bool) -> (Vec<Value>, bool) {
    let mut messages = Vec::new();
    if dice.chance(60) {
        messages.push(json!({ "role": "system", "content": dice.text(3) }));
    }
    let offers_tools = with_tools && dice.chance(50);
    for turn in 0..=dice.below(4) {
        messages.push(json!({ "role": "user", "content": dice.text(4) }));
        if dice.chance(10) {
            messages.push(json!({ "role": "user", "content": dice.text(2) }));
        }
        if offers_tools && dice.chance(50) {
            let arguments = json!({ "city": dice.text(1), "days": turn });
            messages.push(json!({ "role": "assistant", "content": if dice.chance(50) { dice.text(1) } else { String::new() }, "tool_calls": [{ "function": { "name": "get_weather", "arguments": arguments } }] }));
            messages.push(json!({ "role": "tool", "tool_name": "get_weather", "content": dice.text(3) }));
        }
        messages.push(json!({ "role": "assistant", "content": dice.text(4) }));
    }
    messages.push(json!({ "role": "user", "content": dice.text(3) }));
    (messages, offers_tools)
}
