use std::io::BufRead;
fn main() -> anyhow::Result<()> {
    let a: Vec<String> = std::env::args().collect();
    let f = std::io::BufReader::new(std::fs::File::open(&a[1])?);
    let m = loadline::tokenize::gguf::read(f)?;
    let t = loadline::tokenize::Tokenizer::new(m.vocabulary)?;
    for l in std::io::stdin().lock().lines() { let s: String = serde_json::from_str(&l?)?; println!("{}", t.count_prompt(&s, Default::default()).tokens); }
    Ok(())
}
