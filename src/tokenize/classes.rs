//! Unicode classes of characters, as one byte of flags a code point.
//!
//! The pre-tokenizers ask "letter, number, space, punctuation, symbol or mark?" for every character
//! they pass, so the answer is a table look-up. The table is made once from `regex-syntax`'s data.

use std::sync::LazyLock;

use regex_syntax::hir::{Class, HirKind};

pub(super) const LETTER: u8 = 1;
pub(super) const NUMBER: u8 = 2;
pub(super) const SPACE: u8 = 4;
pub(super) const PUNCTUATION: u8 = 8;
pub(super) const SYMBOL: u8 = 16;
pub(super) const MARK: u8 = 32;

const CODE_POINTS: usize = 0x11_0000;

static TABLE: LazyLock<Box<[u8]>> = LazyLock::new(|| {
    let mut table = vec![0_u8; CODE_POINTS].into_boxed_slice();
    let classes = [
        (r"\p{L}", LETTER),
        (r"\p{N}", NUMBER),
        (r"\p{White_Space}", SPACE),
        (r"\p{P}", PUNCTUATION),
        (r"\p{S}", SYMBOL),
        (r"\p{M}", MARK),
    ];
    for (pattern, flag) in classes {
        let Ok(hir) = regex_syntax::parse(pattern) else { continue };
        if let HirKind::Class(Class::Unicode(class)) = hir.kind() {
            for range in class.ranges() {
                for entry in &mut table[range.start() as usize..=range.end() as usize] {
                    *entry |= flag;
                }
            }
        }
    }
    table
});

/// A handle on the table, so that a scanner looks the lazy cell up once.
#[derive(Clone, Copy)]
pub(super) struct Classes(&'static [u8]);

impl Classes {
    pub(super) fn get() -> Self {
        Self(&TABLE)
    }

    #[inline]
    pub(super) fn of(self, character: char) -> u8 {
        self.0[character as usize]
    }
}
