//! Writes tiny model files: a real vocabulary, one layer of made-up weights. They answer nonsense, fast,
//! and count truly.

use loadline::tokenize::{TokenType, Vocabulary, VocabularyKind};

const EMBEDDING: u64 = 32;
const ALIGNMENT: usize = 32;
const F32: u32 = 0;
const Q4_0: u32 = 2;

/// A complete GGUF file for a llama of one layer.
pub fn tiny_model(vocabulary: &Vocabulary, context_length: u32) -> Vec<u8> {
    let mut keys = Keys::default();
    keys.text("general.architecture", "llama");
    keys.text("general.name", "tiny");
    for (name, value) in [
        ("llama.context_length", context_length),
        ("llama.embedding_length", EMBEDDING as u32),
        ("llama.block_count", 1),
        ("llama.feed_forward_length", 32),
        ("llama.attention.head_count", 2),
        ("llama.attention.head_count_kv", 2),
        ("llama.rope.dimension_count", 16),
        ("llama.vocab_size", vocabulary.tokens.len() as u32),
    ] {
        keys.number(name, value);
    }
    keys.float("llama.attention.layer_norm_rms_epsilon", 1e-5);
    write_vocabulary(&mut keys, vocabulary);
    assemble(&keys, &tensors(vocabulary.tokens.len() as u64))
}

fn write_vocabulary(keys: &mut Keys, vocabulary: &Vocabulary) {
    let model = match vocabulary.kind {
        VocabularyKind::ByteLevelBpe => "gpt2",
        VocabularyKind::SentencePiece => "llama",
    };
    keys.text("tokenizer.ggml.model", model);
    keys.text("tokenizer.ggml.pre", &vocabulary.pre);
    keys.texts("tokenizer.ggml.tokens", &vocabulary.tokens);
    if vocabulary.kind == VocabularyKind::ByteLevelBpe {
        keys.texts("tokenizer.ggml.merges", &vocabulary.merges);
    } else {
        keys.floats("tokenizer.ggml.scores", &vocabulary.scores);
    }
    let number = |kind: &TokenType| match kind {
        TokenType::Normal => 1,
        TokenType::Unknown => 2,
        TokenType::Control => 3,
        TokenType::UserDefined => 4,
        TokenType::Unused => 5,
        TokenType::Byte => 6,
    };
    keys.numbers("tokenizer.ggml.token_type", &vocabulary.types.iter().map(number).collect::<Vec<i32>>());
    if let Some(bos) = vocabulary.bos {
        keys.number("tokenizer.ggml.bos_token_id", bos);
    }
    if let Some(eos) = vocabulary.eos {
        keys.number("tokenizer.ggml.eos_token_id", eos);
    }
    keys.flag("tokenizer.ggml.add_bos_token", vocabulary.add_bos);
}

struct Tensor {
    name: &'static str,
    dimensions: Vec<u64>,
    kind: u32,
}

fn tensors(vocabulary: u64) -> Vec<Tensor> {
    let norm = |name| Tensor { name, dimensions: vec![EMBEDDING], kind: F32 };
    let square = |name| Tensor { name, dimensions: vec![EMBEDDING, EMBEDDING], kind: Q4_0 };
    vec![
        Tensor { name: "token_embd.weight", dimensions: vec![EMBEDDING, vocabulary], kind: Q4_0 },
        norm("output_norm.weight"),
        norm("blk.0.attn_norm.weight"),
        norm("blk.0.ffn_norm.weight"),
        square("blk.0.attn_q.weight"),
        square("blk.0.attn_k.weight"),
        square("blk.0.attn_v.weight"),
        square("blk.0.attn_output.weight"),
        square("blk.0.ffn_gate.weight"),
        square("blk.0.ffn_up.weight"),
        square("blk.0.ffn_down.weight"),
    ]
}

fn assemble(keys: &Keys, tensors: &[Tensor]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3_u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(keys.count.to_le_bytes());
    out.extend(&keys.bytes);
    let mut data = Vec::new();
    for tensor in tensors {
        write_text(&mut out, tensor.name);
        out.extend((tensor.dimensions.len() as u32).to_le_bytes());
        tensor.dimensions.iter().for_each(|dimension| out.extend(dimension.to_le_bytes()));
        out.extend(tensor.kind.to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        weights(tensor, &mut data);
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend(data);
    out
}

/// Norms are one; everything else is small and patterned, so that no two tokens are quite alike.
fn weights(tensor: &Tensor, data: &mut Vec<u8>) {
    let elements: u64 = tensor.dimensions.iter().product();
    if tensor.kind == F32 {
        (0..elements).for_each(|_| data.extend(1_f32.to_le_bytes()));
        return;
    }
    let mut state = 0x9E37_79B9_u32;
    for _ in 0..elements / 32 {
        // The half-precision number 0.0078, then thirty-two four-bit weights.
        data.extend(0x2000_u16.to_le_bytes());
        for _ in 0..16 {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            data.push((state >> 24) as u8);
        }
    }
}

#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    count: u64,
}

impl Keys {
    fn key(&mut self, name: &str, kind: u32) {
        write_text(&mut self.bytes, name);
        self.bytes.extend(kind.to_le_bytes());
        self.count += 1;
    }

    fn list(&mut self, name: &str, kind: u32, length: usize) {
        self.key(name, 9);
        self.bytes.extend(kind.to_le_bytes());
        self.bytes.extend((length as u64).to_le_bytes());
    }

    fn text(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        write_text(&mut self.bytes, value);
    }

    fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    fn float(&mut self, name: &str, value: f32) {
        self.key(name, 6);
        self.bytes.extend(value.to_le_bytes());
    }

    fn flag(&mut self, name: &str, value: bool) {
        self.key(name, 7);
        self.bytes.push(u8::from(value));
    }

    fn texts(&mut self, name: &str, values: &[String]) {
        self.list(name, 8, values.len());
        values.iter().for_each(|value| write_text(&mut self.bytes, value));
    }

    fn floats(&mut self, name: &str, values: &[f32]) {
        self.list(name, 6, values.len());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }

    fn numbers(&mut self, name: &str, values: &[i32]) {
        self.list(name, 5, values.len());
        values.iter().for_each(|value| self.bytes.extend(value.to_le_bytes()));
    }
}

fn write_text(out: &mut Vec<u8>, text: &str) {
    out.extend((text.len() as u64).to_le_bytes());
    out.extend(text.as_bytes());
}
