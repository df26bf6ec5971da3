//! The matrix in docs/clients.md: written by a run, compared by every other. A cell that worked and does not any
//! more, or a version that is not the documented one, is a difference, and a difference is a failure.

use std::path::Path;

use super::run::{CLIENTS, Cell, FEATURES, Seen, seen};

const BEGIN: &str =
    "<!-- The matrix begins: `LOADLINE_WRITE_DOCS=1 cargo test live::clients` writes it, nobody else. -->\n";
const END: &str = "<!-- The matrix ends. -->\n";

#[tokio::test(flavor = "multi_thread")]
async fn the_matrix_is_what_the_documentation_says() {
    let mut columns = Vec::new();
    for number in 0..CLIENTS.len() {
        let Some(seen) = seen(number).await else { return };
        columns.push(seen);
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/clients.md");
    let text = std::fs::read_to_string(&file).expect("the documentation is there");
    let (before, rest) = text.split_once(BEGIN).expect("the matrix has a place");
    let (documented, after) = rest.split_once(END).expect("the matrix has an end");
    let now = matrix(&columns);
    if std::env::var("LOADLINE_WRITE_DOCS").is_ok_and(|wanted| wanted == "1") {
        std::fs::write(&file, [before, BEGIN, &now, END, after].concat()).expect("the documentation is written");
        return;
    }
    assert_eq!(documented, now, "docs/clients.md says something else than this run: see tests/live/clients/README.md");
}

fn matrix(columns: &[&Seen]) -> String {
    let heads = CLIENTS
        .iter()
        .zip(columns)
        .map(|(client, seen)| format!("{} `{}` {}", client.language, client.name, seen.version));
    let mut lines = vec![row("", heads), row("---", CLIENTS.iter().map(|_| "---".to_owned()))];
    let mut notes: Vec<String> = Vec::new();
    for feature in FEATURES {
        let cells = columns.iter().map(|seen| written(&seen.cells[feature], &mut notes)).collect::<Vec<_>>();
        lines.push(row(feature, cells.into_iter()));
    }
    lines.push(String::new());
    lines.extend(notes.iter().enumerate().map(|(number, note)| format!("{}. {note}", number + 1)));
    lines.join("\n") + "\n"
}

fn row(first: &str, cells: impl Iterator<Item = String>) -> String {
    std::iter::once(first.to_owned()).chain(cells).fold(String::from("|"), |row, cell| format!("{row} {cell} |"))
}

/// A cell, with the number of its note where it needs one.
fn written(cell: &Cell, notes: &mut Vec<String>) -> String {
    let mut noted = |sign: &str, text: String| {
        let number = notes.iter().position(|note| *note == text).unwrap_or_else(|| {
            notes.push(text);
            notes.len() - 1
        });
        format!("{sign} ({})", number + 1)
    };
    match cell {
        Cell::Same => "same".to_owned(),
        Cell::Works => "works".to_owned(),
        Cell::Absent(reason) => noted("–", reason.clone()),
        Cell::AsWithout(error) => noted("as without", format!("fails in the same way without Loadline: {error}")),
        Cell::Differs(what) => noted("**differs**", what.clone()),
        Cell::Fails(what) => noted("**fails**", what.clone()),
    }
}
