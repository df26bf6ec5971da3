//! The history API and what belongs to it: who may read, what comes in, what goes out.

mod access;
mod commands;
mod delete;
mod handoff;
mod import;
mod read;
pub mod round_trip;
mod validate_command;

use loadline::api::auth::{Scope, Scopes};
use loadline::api::token::Token;
use loadline::store::{Change, NewToken};
use serde_json::{Value, json};

use crate::stage::{Got, Stage};

impl Stage {
    /// A token for a user, good for chat and reading.
    pub async fn token(&self, user: &str) -> String {
        self.token_with(user, &[Scope::Chat, Scope::Read], None).await
    }

    pub async fn token_with(&self, user: &str, scopes: &[Scope], expires_at: Option<i64>) -> String {
        let token = Token::new().expect("randomness");
        let new = NewToken {
            name: format!("{user}-{}", token.hint()),
            user: user.to_owned(),
            digest: token.digest(),
            hint: token.hint(),
            scopes: Scopes::new(scopes.iter().copied()).to_string(),
            at: 1,
            expires_at,
        };
        self.gateway.store.submit(Change::CreateToken(new)).await.expect("stored");
        token.reveal().to_owned()
    }

    pub async fn get_as(&self, token: &str, path: &str) -> Got {
        self.send("GET", path, "", &[("authorization", &format!("Bearer {token}"))]).await
    }

    /// Imports messages of a user and assistant in turns, and gives the conversation's number.
    pub async fn imported(&self, token: &str, messages: usize) -> i64 {
        let message = |number: usize| {
            let role = if number.is_multiple_of(2) { "user" } else { "assistant" };
            json!({ "role": role, "content": format!("message {number}"), "timestamp": timestamp(number) })
        };
        self.import(token, &(0..messages).map(message).collect::<Value>().to_string()).await.json()["id"]
            .as_i64()
            .expect("a number")
    }

    pub async fn import(&self, token: &str, body: &str) -> Got {
        self.send("POST", "/api/conversations", body, &[("authorization", &format!("Bearer {token}"))]).await
    }
}

/// One second after the other.
pub fn timestamp(number: usize) -> String {
    format!("2026-01-02T{:02}:{:02}:{:02}Z", 10 + number / 3600, number / 60 % 60, number % 60)
}

pub fn contents(got: &Got) -> Vec<String> {
    let rows = got.json();
    rows.as_array().expect("an array").iter().map(|row| row["content"].as_str().expect("text").to_owned()).collect()
}
