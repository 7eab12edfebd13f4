//! Names as people type them.

/// The beginning of a text that may be of any length and hold anything: a message is one line of a
/// terminal.
pub fn shortened(text: &str) -> String {
    let visible = |c: char| if c.is_control() { '?' } else { c };
    text.chars().take(64).map(visible).collect()
}

/// Characters to insert, delete or replace (Levenshtein).
pub fn edit_distance(a: &str, b: &str) -> usize {
    let b: Vec<char> = b.chars().collect();
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, from) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, to) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(from != *to);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}
