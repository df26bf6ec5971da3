#![allow(missing_docs)]
pub mod tokenize;
