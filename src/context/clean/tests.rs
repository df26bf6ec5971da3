//! What cleaning promises.

use super::*;

fn cleaned(text: &str) -> String {
    clean(text, &[]).map_or_else(|| text.to_owned(), |cleaned| cleaned.text)
}

/// A number from a fixed sequence.
fn roll(seed: &mut u64, below: usize) -> usize {
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*seed >> 33) as usize % below
}

fn log(lines: Range<usize>) -> String {
    lines.map(|n| format!("line {n} of a log that is long enough to be worth a reference, I think\n")).collect()
}

#[test]
fn what_is_clean_is_left_alone() {
    for text in ["", " ", "\n\n\n", "a\n\n\nb", "  indented\r\n\tmore", "naïve 👩‍👩‍👧 e\u{301}", "old\rmac\rlines"]
    {
        assert_eq!(clean(text, &["a\n\n\nb", text]), None, "{text:?}");
    }
}

#[test]
fn a_terminal_leaves_what_it_shows() {
    for (text, shown) in [
        ("\u{1b}[1;31merror\u{1b}[0m: no", "error: no"),
        ("a\rb\rc\n", "c\n"),
        ("abc\rX\r\n", "Xbc\r\n"),
        (" 10%\r100%\r\u{1b}[Kdone\nnext", "done\nnext"),
        ("\u{1b}]8;;https://x.org\u{1b}\\link\u{1b}]8;;\u{1b}\\ \u{1b}]0;title\u{7}end", "link end"),
        ("\u{1b}(Bplain\u{1b}7 \u{1b}lone", "plain lone"),
        ("N\u{8}NA\u{8}AM\u{8}ME _\u{8}x", "NAME x"),
        ("漢字\rab\n", "ab字\n"),
        ("漢字\ra\n", "a 字\n"),
        ("e\u{301}\rx👍🏽\n", "x👍🏽\n"),
        ("key\u{1b}[20Cvalue", "key value"),
        ("\u{1b}]0;never ends\nnext", "]0;never ends\nnext"),
        ("\u{1b}[31", "[31"),
    ] {
        assert_eq!(cleaned(text), shown, "{text:?}");
    }
}

#[test]
fn space_goes_at_line_ends_and_between_paragraphs_but_not_in_code() {
    let code = "```py  \nx = 1  \n\n\n\n\ny = 2\n``` \n";
    let found = clean(&format!("  a b \t\n\n \n\n\nb\r\n\r\n\r\n{code}c  "), &[]).unwrap();
    assert_eq!(found.text, format!("  a b\n\nb\r\n\r\n\r\n{code}c"));
    assert_eq!(found.done, [Cleaning::BlankLines, Cleaning::TrailingSpace]);
    assert_eq!(clean("~~~\n```\n\n\n\n```\n  \n", &[]), None, "a fence is closed by its own mark");
}

#[test]
fn a_block_that_is_already_there_becomes_a_reference() {
    let earlier = format!("look:\n{}thanks", log(0..40));
    let text = format!("again:\n{}\n{}is wrong", log(3..8), log(8..30).replace('\n', " \r\n"));
    let found = clean(&text, &["something else", &earlier]).unwrap();
    let line = |n| format!("line {n} of a log that is long enough to be worth a reference, I thi");
    let (from, to) = (line(3).chars().take(60).collect::<String>(), line(29).chars().take(60).collect::<String>());
    let reference = format!("[the same 28 lines as in an earlier message: \"{from}…\" to \"{to}…\"]");
    assert_eq!(found.text, format!("again:\n{reference}\r\nis wrong"));
    assert!(found.done.contains(&Cleaning::RepeatedBlock { lines: 28 }));
    assert_eq!(clean(&found.text, &[&earlier, &found.text]), None);
    assert_eq!(clean(&log(0..7), &[&earlier]), None, "too few lines");
    assert_eq!(clean(&"}\n".repeat(390), &[&"}\n".repeat(390)]), None, "too few characters");
}

#[test]
fn a_reference_does_not_open_or_close_code() {
    let earlier = format!("{}```\n{}", log(0..10), log(10..20));
    let found = clean(&format!("{}```\n{}```\nprose", log(0..10), log(10..20)), &[&earlier]).unwrap();
    let lines: Vec<&str> = found.text.lines().collect();
    assert!(lines.len() == 5 && lines[1] == "```" && lines[3] == "```" && lines[4] == "prose", "{}", found.text);
}

#[test]
fn cleaning_twice_is_cleaning_once_and_nothing_visible_is_lost() {
    let harmless = [
        "a",
        "é",
        "e\u{301}",
        "👩‍👩‍👧",
        "漢",
        " ",
        "  ",
        "\t",
        "\n",
        "\n\n\n\n",
        "\r\n",
        "```",
        "~~~\n",
        "\u{0}",
        "\u{2028}",
        "[",
        "8",
    ];
    let sequences = ["\u{1b}[0m", "\u{1b}]0;t\u{7}", "\u{1b}(B", "\u{7}", "\u{1b}[2J", "\u{1b}[1;3H"];
    let painting =
        ["\r", "\u{8}", "\u{1b}", "\u{1b}[K", "\u{1b}[2K", "\u{1b}[3D", "\u{1b}[C", "\u{1b}[1G", "\u{1b}]", "\u{1b}\\"];
    let mut seed = 3;
    for round in 0..4000 {
        let (mut text, mut visible) = (String::new(), String::new());
        for _ in 0..roll(&mut seed, 60) {
            match roll(&mut seed, 10) {
                0 => text += sequences[roll(&mut seed, sequences.len())],
                1 if round % 2 == 0 => text += painting[roll(&mut seed, painting.len())],
                _ => {
                    let piece = harmless[roll(&mut seed, harmless.len())];
                    text += piece;
                    visible += piece;
                }
            }
        }
        let block = log(roll(&mut seed, 9)..roll(&mut seed, 30));
        let (earlier, text) = (format!("{text}\n{block}{}", log(5..20)), format!("{text}\n{block}{text}"));
        let once = clean(&text, &[&earlier]).map_or_else(|| text.clone(), |cleaned| cleaned.text);
        assert_eq!(clean(&once, &[&earlier]), None, "{text:?} became {once:?}");
        if round % 2 == 1 && !visible.trim().is_empty() {
            let alone = cleaned(&text);
            let letters = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            assert_eq!(letters(&alone), letters(&format!("{visible}{block}{visible}")), "{text:?}");
        }
    }
}
