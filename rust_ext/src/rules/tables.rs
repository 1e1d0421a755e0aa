//! Tables: the values below a line of names of fields, as exports and worklists have them.
//!
//! A line is a head where its cells, parted by tabs or `|`, are names of fields for the most part. Each line below it with as many
//! cells is a row, and its cells are the values of the names above them. Cost: one look at the lines that have the sign twice.

use memchr::memchr_iter;

use super::fields::{Fields, Value};

/// Cells of a line beyond which it is no table that somebody reads.
const MAX_CELLS: usize = 64;

/// Bounds of the lines of tables, from the first to the last of each; what stands in their cells goes to `emit`.
pub fn of_text(fields: &Fields, text: &[u8], mut emit: impl FnMut(Value)) -> Vec<(usize, usize)> {
    let mut tables: Vec<(usize, usize)> = Vec::new();
    let mut head: Option<(u8, Vec<Option<[u8; 2]>>)> = None;
    let mut start = 0;
    for end in memchr_iter(b'\n', text).chain([text.len()]) {
        let line = &text[start..end];
        let sign = if line.contains(&b'\t') { b'\t' } else { b'|' };
        let cells = cells(line, sign);
        let in_table = match &head {
            Some((same, labels)) if *same == sign && cells.len() == labels.len() => {
                for (&(from, to), label) in cells.iter().zip(labels) {
                    if let Some(rules) = label.filter(|_| from < to) {
                        emit(Value { rules, start: start + from, end: start + to, next: start + to });
                    }
                }
                true
            }
            _ => {
                head = names(fields, text, start, &cells).map(|labels| (sign, labels));
                if head.is_some() {
                    tables.push((start, end));
                }
                false
            }
        };
        if let Some(last) = tables.last_mut().filter(|_| in_table) {
            last.1 = end;
        }
        start = (end + 1).min(text.len());
    }
    // A head without a row below it is a line of fields.
    tables.retain(|&(start, end)| text[start..end].contains(&b'\n'));
    tables
}

/// Bounds of the cells of a line, without the blanks around what they hold; none where there are less than three.
fn cells(line: &[u8], sign: u8) -> Vec<(usize, usize)> {
    let mut signs = memchr_iter(sign, line);
    let (Some(first), Some(second)) = (signs.next(), signs.next()) else { return Vec::new() };
    let (mut cells, mut from) = (Vec::new(), 0);
    for to in [first, second].into_iter().chain(signs).chain([line.len()]).take(MAX_CELLS) {
        let cell = &line[from..to];
        let left = cell.len() - cell.trim_ascii_start().len();
        let length = cell.trim_ascii().len();
        cells.push((from + left.min(cell.len()), from + left.min(cell.len()) + length));
        from = to + 1;
    }
    cells
}

/// What stands below each cell of a head; None where most cells are no names of fields.
fn names(fields: &Fields, text: &[u8], start: usize, cells: &[(usize, usize)]) -> Option<Vec<Option<[u8; 2]>>> {
    let labels: Vec<_> = cells.iter().map(|&(from, to)| fields.of_cell(text, start + from, start + to)).collect();
    let filled = cells.iter().filter(|(from, to)| from < to).count();
    let known = labels.iter().filter(|label| label.is_some()).count();
    (known >= 2 && 2 * known > filled).then_some(labels)
}

#[cfg(test)]
mod tests {
    use super::super::RULES;
    use super::*;

    fn found(text: &str) -> (Vec<(&'static str, String)>, usize) {
        let mut found = Vec::new();
        let tables = of_text(Fields::shipped().unwrap(), text.as_bytes(), |value| {
            let label = RULES.get(value.rules[0] as usize).map_or("-", |rule| rule.label);
            found.push((label, text[value.start..value.end].to_owned()));
        });
        (found, tables.len())
    }

    #[test]
    fn tables_of_hand_worked_texts() {
        let table: &[(&str, &[(&str, &str)])] = &[
            ("Name\tAge\tx\nRoy\t4\t5\n", &[("NAME", "Roy"), ("AGE", "4")]),
            (
                "| Name | Age |\n|---|---|\n| Roy | 4 |\nend",
                &[("NAME", "---"), ("AGE", "---"), ("NAME", "Roy"), ("AGE", "4")],
            ),
            ("Name | Age | Sex\nRoy | | F", &[("NAME", "Roy"), ("-", "F")]),
            // Names and values side by side, fewer cells, no row, words.
            ("| Name | Roy | Age | 4 |\n| a | b | c | d |", &[]),
            ("Name\tAge\tSex\nRoy\t4", &[]),
            ("Name\tAge\tSex", &[]),
            ("a\tb\tc\nd\te\tf", &[]),
            ("", &[]),
        ];
        for (text, expected) in table {
            let expected: Vec<_> = expected.iter().map(|&(label, value)| (label, value.to_owned())).collect();
            assert_eq!(found(text), (expected.clone(), usize::from(!expected.is_empty())), "{text:?}");
        }
    }
}
