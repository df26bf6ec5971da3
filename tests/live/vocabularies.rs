//! Real vocabularies from registries, and templates of several kinds to render them with.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use loadline::sim::vocabulary::{Table, from_ranked, from_tiktoken};
use loadline::tokenize::{TokenType, Vocabulary, VocabularyKind, gguf};

use super::server::smollm_file;

/// ChatML with tools, tool calls and thinking, as the larger model families write it.
pub const CHATML: &str = r#"{{- if or .System .Tools }}<|im_start|>system
{{ .System }}{{ if .Tools }}

You may call these:
{{- range .Tools }}
{{ . }}{{ end }}{{ end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Thinking }}<think>{{ .Thinking }}</think>
{{ end }}{{ .Content }}{{ range .ToolCalls }}
<tool_call>{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}</tool_call>{{ end }}{{ if not $last }}<|im_end|>
{{ end }}
{{- else if eq .Role "tool" }}<|im_start|>tool
{{ .Content }}<|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ end }}
{{- end }}"#;

/// Tools stand in the last message of the user, and a default system prompt stands in for none.
pub const TOOLS_LAST: &str = r#"<|im_start|>system
{{ if .System }}{{ .System }}{{ else }}You answer briefly.{{ end }}<|im_end|>
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|im_start|>user
{{ if and $.Tools $last }}Answer with a call of one of these: {{ $.Tools }}

{{ end }}{{ .Content }}<|im_end|>
{{- else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .ToolCalls }}{{ range .ToolCalls }}{"call":"{{ .Function.Name }}","with":{{ .Function.Arguments }}}{{ end }}{{ else }}{{ .Content }}{{ end }}<|im_end|>
{{- else if eq .Role "tool" }}<|im_start|>result
{{ .Content }}<|im_end|>
{{- end }}
{{- end }}<|im_start|>assistant
"#;

/// The system prompt is folded into the first message of the user.
pub const FOLDED: &str = r#"{{- $system := "" }}
{{- range .Messages }}
{{- if eq .Role "system" }}{{ $system = .Content }}
{{- else if eq .Role "user" }}<|im_start|>user
{{ if $system }}{{ $system }}

{{ $system = "" }}{{ end }}{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>model
{{ .Content }}<|im_end|>
{{ end }}
{{- end }}<|im_start|>model
"#;

/// The old kind, one turn at a time, without a list of messages.
pub const LEGACY: &str = r#"{{ if .System }}[SYS] {{ .System }} [/SYS]
{{ end }}{{ if .Prompt }}[INST] {{ .Prompt }} [/INST]{{ end }} {{ .Response }}<|im_end|>"#;

/// No special token anywhere, so that everything is one piece.
pub const PLAIN: &str = "{{ range .Messages }}### {{ .Role }}:\n{{ .Content }}\n{{ end }}### assistant:\n";

pub fn gpt2() -> Vocabulary {
    from_tiktoken(Table::R50k)
}

/// GPT-2's vocabulary under another pre-tokenizer: what is tested then is that one.
pub fn gpt2_split_as(pre: &str) -> Vocabulary {
    Vocabulary { pre: pre.to_owned(), ..gpt2() }
}

pub fn cl100k_as_llama3() -> Vocabulary {
    let vocabulary = from_tiktoken(Table::Cl100k);
    let bos = vocabulary.tokens.len() as u32 - 1;
    Vocabulary { pre: "llama-bpe".to_owned(), bos: Some(bos), add_bos: true, ..vocabulary }
}

pub fn o200k() -> Vocabulary {
    from_tiktoken(Table::O200k)
}

pub fn qwen() -> Vocabulary {
    from_ranked(&unpack(splintr_vocab_qwen::QWEN3_VOCAB_PACKED), "qwen2")
}

pub fn deepseek() -> Vocabulary {
    from_ranked(&unpack(splintr_vocab_deepseek::DEEPSEEK_V3_VOCAB_PACKED), "deepseek-v3")
}

pub fn tekken() -> Vocabulary {
    from_ranked(&unpack(splintr_vocab_mistral::MISTRAL_V3_VOCAB_PACKED), "tekken")
}

/// SmolLM2's own, out of its model file; `None` where the file is not there.
pub fn smollm() -> Option<Vocabulary> {
    let file = std::fs::File::open(smollm_file()).ok()?;
    gguf::read(std::io::BufReader::new(file)).ok().map(|model| model.vocabulary)
}

/// Mistral's SentencePiece: a text in base64 and a score on each line.
pub fn mistral_sentencepiece() -> Vocabulary {
    let text = std::str::from_utf8(splintr_vocab_mistral::MISTRAL_SPM_VOCAB).expect("text");
    let mut vocabulary = Vocabulary {
        kind: VocabularyKind::SentencePiece,
        pre: "default".to_owned(),
        bos: Some(1),
        eos: Some(2),
        add_bos: true,
        add_space_prefix: true,
        ..Vocabulary::default()
    };
    for line in text.lines() {
        let (piece, score) = line.rsplit_once(' ').expect("two columns");
        let piece = String::from_utf8(STANDARD.decode(piece).expect("base64")).expect("text");
        vocabulary.types.push(match piece.as_str() {
            "<unk>" => TokenType::Unknown,
            "<s>" | "</s>" => TokenType::Control,
            byte if byte.len() == 6 && byte.starts_with("<0x") => TokenType::Byte,
            _ => TokenType::Normal,
        });
        vocabulary.tokens.push(piece);
        vocabulary.scores.push(score.parse().expect("a number"));
    }
    vocabulary
}

/// The tokens of a packed vocabulary in the order of their ranks: a head, then rank, length and bytes of each.
fn unpack(packed: &[u8]) -> Vec<Vec<u8>> {
    let mut rest = packed.strip_prefix(b"SPLNTRV1").expect("the head").get(4..).expect("a count");
    let mut tokens: Vec<(u64, Vec<u8>)> = Vec::new();
    while !rest.is_empty() {
        let rank = varint(&mut rest);
        let length = varint(&mut rest) as usize;
        let (token, after) = rest.split_at(length);
        tokens.push((rank, token.to_vec()));
        rest = after;
    }
    tokens.sort_by_key(|(rank, _)| *rank);
    tokens.into_iter().map(|(_, token)| token).collect()
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (first, rest) = bytes.split_first().expect("not at the end");
        *bytes = rest;
        value |= u64::from(first & 0x7F) << shift;
        if first & 0x80 == 0 {
            break;
        }
    }
    value
}
