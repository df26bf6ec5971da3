//! What `/api/show` says about a model, as far as counting and windows need it.

use serde_json::value::RawValue;

use crate::json::{Fields, JsonError};
use crate::tokenize::{Keys, TokenType, Vocabulary, VocabularyError};

#[derive(Debug, Default)]
pub(super) struct Shown {
    pub(super) trained_window: Option<u32>,
    /// `PARAMETER num_ctx` of the Modelfile.
    pub(super) num_ctx: Option<u32>,
    /// Changes when the model of that name is replaced.
    pub(super) modified_at: String,
    pub(super) architecture: String,
    /// The model runs in the cloud; this server only passes requests on.
    pub(super) runs_elsewhere: bool,
    /// Whether it looks at pictures, where the upstream tells what a model can do.
    pub(super) sees: Option<bool>,
    pub(super) vocabulary: Option<Result<Vocabulary, VocabularyError>>,
}

pub(super) fn read(body: &str) -> Result<Shown, JsonError> {
    let fields = Fields::read(body, &[])?;
    let mut shown = Shown {
        num_ctx: fields.text("parameters")?.and_then(|parameters| parameter(&parameters, "num_ctx")),
        modified_at: fields.text("modified_at")?.unwrap_or_default().into_owned(),
        runs_elsewhere: fields.text("remote_host")?.is_some_and(|host| !host.is_empty()),
        sees: fields.get("capabilities").and_then(|raw| {
            let able: Vec<String> = serde_json::from_str(raw.get()).ok()?;
            Some(able.iter().any(|one| one == "vision"))
        }),
        ..Shown::default()
    };
    let Some(info) = fields.get("model_info") else { return Ok(shown) };
    let info = Fields::read(info.get(), &[])?;
    shown.architecture = info.text("general.architecture")?.unwrap_or_default().into_owned();
    let trained = info.number(&format!("{}.context_length", shown.architecture))?;
    shown.trained_window = trained.filter(|length| *length >= 1.0).map(|length| length as u32);
    // A vocabulary that cannot be read is one that cannot be had; the rest is still good.
    shown.vocabulary =
        vocabulary(&info).unwrap_or(Some(Err(VocabularyError::Incomplete("its lists could not be read"))));
    Ok(shown)
}

/// One line of the parameters is a name, spaces, and a value; the last one counts.
fn parameter(parameters: &str, name: &str) -> Option<u32> {
    parameters.lines().rev().find_map(|line| {
        let (key, value) = line.trim().split_once(char::is_whitespace)?;
        (key == name).then(|| value.trim().trim_matches('"').parse::<f64>().ok().map(|number| number as u32))?
    })
}

/// The vocabulary, if the lists are there. Without `verbose` they are null.
fn vocabulary(info: &Fields<'_>) -> Result<Option<Result<Vocabulary, VocabularyError>>, JsonError> {
    let Some(tokens) = info.get("tokenizer.ggml.tokens") else { return Ok(None) };
    let number = |name| Ok::<_, JsonError>(info.number(name)?.map(|number| number as u32));
    let keys = Keys {
        model: info.text("tokenizer.ggml.model")?.unwrap_or_default().into_owned(),
        pre: info.text("tokenizer.ggml.pre")?.map(Into::into),
        bos: number("tokenizer.ggml.bos_token_id")?,
        eos: number("tokenizer.ggml.eos_token_id")?,
        add_bos: info.flag("tokenizer.ggml.add_bos_token")?,
        add_eos: info.flag("tokenizer.ggml.add_eos_token")?,
        add_space_prefix: info.flag("tokenizer.ggml.add_space_prefix")?,
        // Ollama does not tell the name inside the file; the architecture is the nearest thing to it.
        model_name: info.text("general.name")?.or(info.text("general.architecture")?).map(Into::into),
    };
    let mut vocabulary = match Vocabulary::with_keys(keys) {
        Ok(vocabulary) => vocabulary,
        Err(error) => return Ok(Some(Err(error))),
    };
    vocabulary.tokens = list(Some(tokens))?;
    vocabulary.merges = list(info.get("tokenizer.ggml.merges"))?;
    vocabulary.scores = list(info.get("tokenizer.ggml.scores"))?;
    let types: Vec<i64> = list(info.get("tokenizer.ggml.token_type"))?;
    vocabulary.types = types.into_iter().map(TokenType::from_number).collect();
    Ok(Some(Ok(vocabulary)))
}

fn list<'a, T: serde::Deserialize<'a>>(raw: Option<&'a RawValue>) -> Result<Vec<T>, JsonError> {
    raw.map_or_else(|| Ok(Vec::new()), |raw| serde_json::from_str(raw.get()).map_err(|_| JsonError::WrongType))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_modelfile_window_is_read_from_the_parameters() {
        let parameters = "stop                           \"<|im_end|>\"\nnum_ctx                        2048";
        assert_eq!(parameter(parameters, "num_ctx"), Some(2048));
        assert_eq!(parameter("stop \"num_ctx 5\"", "num_ctx"), None);
    }

    #[test]
    fn lists_that_are_null_mean_no_vocabulary() {
        let body = r#"{"model_info":{"general.architecture":"llama","llama.context_length":8192,"tokenizer.ggml.tokens":null}}"#;
        let shown = read(body).expect("json");
        assert_eq!((shown.trained_window, shown.vocabulary.is_none()), (Some(8192), true));
    }
}
