//! Writes tiny model files: a real vocabulary and one layer. With made-up weights they answer nonsense, fast,
//! and count truly; `scripted.rs` has some that say what they are told to.

use loadline::tokenize::{TokenType, Vocabulary, VocabularyKind};

const EMBEDDING: u64 = 32;
const ALIGNMENT: usize = 32;

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

pub fn write_vocabulary(keys: &mut Keys, vocabulary: &Vocabulary) {
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

/// A tensor of a model file.
pub struct Tensor {
    pub name: String,
    pub dimensions: Vec<u64>,
    pub weights: Weights,
}

/// What is in it, and so how it is written.
pub enum Weights {
    /// Nothing but ones, in single precision: norms.
    Ones,
    /// Small and patterned, four bits each, so that no two tokens are quite alike.
    Patterned,
    /// These whole numbers, a byte each.
    Given(Vec<i8>),
    /// Nothing but zeros, a byte each.
    Zeros,
    /// The same small number everywhere, in half precision.
    Even,
}

impl Weights {
    /// The number of this encoding in the format.
    fn kind(&self) -> u32 {
        match self {
            Self::Ones => 0,
            Self::Even => 1,
            Self::Patterned => 2,
            Self::Given(_) | Self::Zeros => 8,
        }
    }

    fn write(&self, elements: u64, data: &mut Vec<u8>) {
        match self {
            Self::Ones => (0..elements).for_each(|_| data.extend(1_f32.to_le_bytes())),
            // The half-precision number 0.0078.
            Self::Even => (0..elements).for_each(|_| data.extend(0x2000_u16.to_le_bytes())),
            Self::Patterned => {
                let mut state = 0x9E37_79B9_u32;
                for _ in 0..elements / 32 {
                    data.extend(0x2000_u16.to_le_bytes());
                    for _ in 0..16 {
                        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                        data.push((state >> 24) as u8);
                    }
                }
            }
            Self::Given(values) => {
                assert_eq!(values.len() as u64, elements, "a weight for each element");
                for block in values.chunks(32) {
                    // The half-precision number one, then thirty-two whole numbers.
                    data.extend(0x3C00_u16.to_le_bytes());
                    data.extend(block.iter().map(|value| *value as u8));
                }
            }
            Self::Zeros => data.resize(data.len() + elements as usize / 32 * 34, 0),
        }
    }
}

fn tensors(vocabulary: u64) -> Vec<Tensor> {
    let tensor = |name: &str, dimensions: &[u64], weights| Tensor {
        name: name.to_owned(),
        dimensions: dimensions.to_vec(),
        weights,
    };
    let norm = |name| tensor(name, &[EMBEDDING], Weights::Ones);
    let square = |name| tensor(name, &[EMBEDDING, EMBEDDING], Weights::Patterned);
    vec![
        tensor("token_embd.weight", &[EMBEDDING, vocabulary], Weights::Patterned),
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

pub fn assemble(keys: &Keys, tensors: &[Tensor]) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(3_u32.to_le_bytes());
    out.extend((tensors.len() as u64).to_le_bytes());
    out.extend(keys.count.to_le_bytes());
    out.extend(&keys.bytes);
    let mut data = Vec::new();
    for tensor in tensors {
        write_text(&mut out, &tensor.name);
        out.extend((tensor.dimensions.len() as u32).to_le_bytes());
        tensor.dimensions.iter().for_each(|dimension| out.extend(dimension.to_le_bytes()));
        out.extend(tensor.weights.kind().to_le_bytes());
        out.extend((data.len() as u64).to_le_bytes());
        tensor.weights.write(tensor.dimensions.iter().product(), &mut data);
        data.resize(data.len().next_multiple_of(ALIGNMENT), 0);
    }
    out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
    out.extend(data);
    out
}

/// The part of the file that says what it is.
#[derive(Default)]
pub struct Keys {
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

    pub fn text(&mut self, name: &str, value: &str) {
        self.key(name, 8);
        write_text(&mut self.bytes, value);
    }

    pub fn number(&mut self, name: &str, value: u32) {
        self.key(name, 4);
        self.bytes.extend(value.to_le_bytes());
    }

    pub fn float(&mut self, name: &str, value: f32) {
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
