//! Lines of their own: a name at the head of an address, or below the greeting that ends a letter.

use crate::detect::context::is_capital;
use crate::detect::running_words::{CLOSING, kind};
use crate::detect::runs::between;
use crate::text::pieces::View;

/// Before each line of a quoted mail.
const QUOTING: [char; 4] = [' ', '\t', '>', '|'];
/// Lines from a name to the street it lives in.
const ADDRESS: usize = 4;
/// Words of a line of an address.
const MAX_LINE: usize = 6;

/// A line that a house number follows, at once or after lines of a trade or a firm, or that ends a letter.
pub fn is_own_line(view: &View, first: usize, last: usize) -> bool {
    let begins =
        first == 0 || between(view, first - 1).is_some_and(|gap| gap.trim_end_matches(QUOTING).ends_with('\n'));
    let ends = between(view, last).is_some_and(|gap| gap.trim_start_matches([' ', '\t', ',', '\r']).starts_with('\n'));
    if !begins || !ends {
        return false;
    }
    let number =
        view.pieces().get(last + 1).is_some() && view.piece(last + 1).bytes().all(|byte| byte.is_ascii_digit());
    let street = number && {
        let gap = between(view, last + 1);
        gap.is_some_and(|gap| matches!(gap, " " | ", "))
            && is_capital(view, last + 2 - usize::from(last + 2 >= view.len())).is_some()
    };
    // A line further up than the street is a name where it is the first of its block.
    let is_top =
        first == 0 || between(view, first - 1).is_some_and(|gap| gap.bytes().filter(|byte| *byte == b'\n').count() > 1);
    let street = street || is_top && (1..ADDRESS).any(|line| is_street_below(view, last, line));
    let closing = first > 0 && kind(view.piece(first - 1)) & CLOSING != 0;
    street || closing
}

/// Whether so many short lines below a piece a line begins with a number and a word with a capital, or two numbers.
fn is_street_below(view: &View, last: usize, num_lines: usize) -> bool {
    let mut piece = last;
    for _ in 0..=num_lines {
        // The last piece of its line.
        let from = piece;
        while piece + 1 < view.len() && between(view, piece).is_some_and(|gap| !gap.contains('\n')) {
            piece += 1;
        }
        let ends = between(view, piece).is_some_and(|gap| gap.trim_matches(QUOTING) == "\n");
        if piece + 2 >= view.len() || piece - from > MAX_LINE || !ends {
            return false;
        }
        piece += 1;
    }
    let is_number = |piece: usize| view.piece(piece).bytes().all(|byte| byte.is_ascii_digit());
    is_number(piece)
        && between(view, piece) == Some(" ")
        && (is_capital(view, piece + 1) == Some(true) || is_number(piece + 1))
}
