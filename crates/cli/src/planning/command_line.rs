//! The command line that a page of results shows.

/// The command line as the user would type it again, without `--out`: results are the same wherever they are written.
pub fn command_line() -> String {
    shown(std::env::args().skip(1))
}

fn shown(arguments: impl IntoIterator<Item = String>) -> String {
    let mut words = vec!["sidestep".to_string()];
    let mut arguments = arguments.into_iter();
    while let Some(word) = arguments.next() {
        if word == "--out" {
            let _directory = arguments.next();
        } else if !word.starts_with("--out=") {
            words.push(quoted(word));
        }
    }
    words.join(" ")
}

/// The word as a shell takes it.
fn quoted(word: String) -> String {
    let plain = word.chars().all(|c| c.is_ascii_alphanumeric() || "-_./:=,+@%".contains(c));
    if plain && !word.is_empty() { word } else { format!("'{}'", word.replace('\'', r"'\''")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str]) -> String {
        shown(words.iter().map(|word| (*word).to_owned()))
    }

    #[test]
    fn the_directory_for_the_results_is_left_out_in_both_spellings() {
        let expected = "sidestep sim run a.toml --seeds 2";
        assert_eq!(of(&["sim", "run", "a.toml", "--out", "one", "--seeds", "2"]), expected);
        assert_eq!(of(&["sim", "run", "--out=one", "a.toml", "--seeds", "2"]), expected);
        assert_eq!(of(&["sim", "run", "a.toml", "--seeds", "2", "--out"]), expected);
    }

    #[test]
    fn words_with_white_space_and_quotes_are_quoted() {
        assert_eq!(of(&["sim", "run", "my file's.toml", ""]), r"sidestep sim run 'my file'\''s.toml' ''");
    }
}
