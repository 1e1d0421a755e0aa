//! What the dates of a document say about each other: the order of day and month, the language, a year.

use super::calendar::language_of;
use super::dates::{Order, Token, parse, tokens};
use super::values::folded;
use crate::word_lists::{LANGUAGES, Language};

/// What the other dates of a document say about how to read one.
#[derive(Clone, Copy, Default)]
pub struct Context {
    pub order: Option<Order>,
    pub language: Option<Language>,
    pub year: Option<i64>,
}

/// What dates of a document tell about each other: numbers over 12, words of one language, a year.
pub fn context_of<'a>(texts: impl Iterator<Item = &'a str> + Clone) -> Context {
    let mut context = Context::default();
    let (mut day_first, mut month_first) = (0, 0);
    let mut languages = [0; 4];
    for text in texts.clone() {
        let found = tokens(text);
        for token in found.iter().filter(|token| !token.number) {
            if let Some(language) = language_of(&folded(&text[token.at.clone()])) {
                languages[language as usize] += 1;
            }
        }
        match evident_order(text, &found) {
            Some(Order::DayFirst) => day_first += 1,
            Some(Order::MonthFirst) => month_first += 1,
            None => {}
        }
    }
    context.order = match day_first.cmp(&month_first) {
        std::cmp::Ordering::Greater => Some(Order::DayFirst),
        std::cmp::Ordering::Less => Some(Order::MonthFirst),
        std::cmp::Ordering::Equal => None,
    };
    let most = languages.iter().max().copied().unwrap_or(0);
    if most > 0 {
        let at = languages.iter().position(|&votes| votes == most).unwrap_or(0);
        context.language = Some(LANGUAGES[at]);
        if context.order.is_none() && context.language != Some(Language::English) {
            context.order = Some(Order::DayFirst);
        }
    }
    context.year = texts.filter_map(|text| parse(text, &context, Order::DayFirst)?.year).next();
    context
}

/// The order that a date of three numbers can only have.
fn evident_order(text: &str, tokens: &[Token]) -> Option<Order> {
    let numbers: Vec<&str> = tokens.iter().filter(|t| t.number).map(|t| &text[t.at.clone()]).take(3).collect();
    let [first, second, year] = numbers[..] else { return None };
    if first.len() > 2 || second.len() > 2 || !matches!(year.len(), 2 | 4) || tokens.iter().take(3).any(|t| !t.number) {
        return None;
    }
    match (first.parse::<u32>().ok()?, second.parse::<u32>().ok()?) {
        (13..=31, 1..=12) => Some(Order::DayFirst),
        (1..=12, 13..=31) => Some(Order::MonthFirst),
        _ => None,
    }
}

/// Counts of dates that can only be read day first, and month first.
pub fn evident_orders<'a>(texts: impl Iterator<Item = &'a str>) -> (u64, u64) {
    let mut counts = (0, 0);
    for text in texts {
        match evident_order(text, &tokens(text)) {
            Some(Order::DayFirst) => counts.0 += 1,
            Some(Order::MonthFirst) => counts.1 += 1,
            None => {}
        }
    }
    counts
}
