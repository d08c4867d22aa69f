//! Patterns over names: `*` stands for any characters, `?` for one.

/// Whether `text` is a pattern, not a plain name.
pub fn is_pattern(text: &str) -> bool {
    text.contains(['*', '?'])
}

/// Whether `pattern` matches all of `name`; takes at most the product of their lengths.
pub fn matches(pattern: &str, name: &str) -> bool {
    let mut pattern = pattern.chars();
    let mut name = name.chars();
    // The last `*` seen: the pattern after it, and the name from which to try that pattern next.
    let mut retry = None;
    loop {
        let mut rest = pattern.clone();
        match (rest.next(), name.clone().next()) {
            (None, None) => return true,
            (Some('*'), _) => {
                retry = Some((rest.clone(), name.clone()));
                pattern = rest;
                continue;
            }
            (Some(wanted), Some(found)) if wanted == '?' || wanted == found => {
                pattern = rest;
                name.next();
                continue;
            }
            _ => {}
        }
        let Some((after, from)) = &mut retry else { return false };
        if from.next().is_none() {
            return false;
        }
        pattern = after.clone();
        name = from.clone();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_star_stands_for_any_characters_and_a_question_mark_for_one() {
        assert!(matches("c*", "c12"));
        assert!(matches("c*", "c"));
        assert!(matches("*-?", "m1-2"));
        assert!(matches("a*b*c", "aXbbYc"));
        assert!(!matches("c?", "c12"));
        assert!(!matches("c*1", "c12"));
        assert!(!matches("c1", "c12"));
        assert!(!matches("", "c"));
    }

    proptest! {
        #[test]
        fn matching_agrees_with_the_obvious_recursion(pattern in "[ab*?]{0,8}", name in "[ab]{0,10}") {
            prop_assert_eq!(matches(&pattern, &name), slow(pattern.as_bytes(), name.as_bytes()));
        }
    }

    fn slow(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern.split_first(), name.split_first()) {
            (None, None) => true,
            (Some((b'*', rest)), None) => slow(rest, name),
            (Some((b'*', rest)), Some((_, tail))) => slow(rest, name) || slow(pattern, tail),
            (Some((wanted, rest)), Some((found, tail))) => (*wanted == b'?' || wanted == found) && slow(rest, tail),
            _ => false,
        }
    }
}
