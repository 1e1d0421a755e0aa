//! The text of a page of HTML in the lines that a reader sees; no script, no style.
//!
//! `html5gum` makes the tokens, by the standard. Of the tree there is only what decides on lines and cells: which blocks
//! and cells are open, and which of them a tag ends that does not name them. Memory is that of the page, of its text, and
//! two bytes for each open element: attributes, comments and the tree are not kept.

use std::convert::Infallible;

use html5gum::{Emitter, Error, State, Tokenizer};

/// Open elements of a page that is read: the end of one is looked for among them.
const MAX_DEPTH: usize = 2048;

/// Elements that stand on lines of their own, and nothing else is to be known of them; by name.
const BLOCKS: [&[u8]; 27] = [
    b"address",
    b"article",
    b"aside",
    b"blockquote",
    b"center",
    b"details",
    b"dialog",
    b"dir",
    b"div",
    b"dl",
    b"fieldset",
    b"figcaption",
    b"figure",
    b"footer",
    b"form",
    b"header",
    b"hgroup",
    b"legend",
    b"main",
    b"menu",
    b"nav",
    b"ol",
    b"search",
    b"section",
    b"summary",
    b"title",
    b"ul",
];

/// An element that ends a line or, `Cell` alone, a cell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Element {
    /// One of [`BLOCKS`], by its place there.
    Block(u8),
    Caption,
    Cell,
    Definition,
    Heading,
    Item,
    Choice,
    Paragraph,
    Preformatted,
    Row,
    Rows,
    Table,
}

impl Element {
    fn of(name: &[u8]) -> Option<Self> {
        Some(match name {
            b"p" => Self::Paragraph,
            b"td" | b"th" => Self::Cell,
            b"tr" => Self::Row,
            b"li" => Self::Item,
            b"table" => Self::Table,
            b"tbody" | b"tfoot" | b"thead" => Self::Rows,
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => Self::Heading,
            b"pre" => Self::Preformatted,
            b"dd" | b"dt" => Self::Definition,
            b"caption" => Self::Caption,
            b"option" => Self::Choice,
            _ => Self::Block(BLOCKS.binary_search(&name).ok()? as u8),
        })
    }

    fn is_of_table(self) -> bool {
        self == Self::Table || self.rank() > 0
    }

    /// Of a part of a table its rank: it ends the parts of its own rank and below. Of others 0.
    fn rank(self) -> u8 {
        match self {
            Self::Cell => 1,
            Self::Row => 2,
            Self::Rows | Self::Caption => 3,
            _ => 0,
        }
    }
}

/// The text of a page in UTF-8; None where too many elements stand in each other.
///
/// A line for a block, a row and a break, a tab behind a cell; white space is one space, but a newline in preformatted text
/// ends a line. No line is blank; none begins or ends with a space or a tab.
pub fn html_text(page: &[u8]) -> Option<String> {
    let mut found = Page { text: Vec::with_capacity(page.len()), ..Page::default() };
    let Ok(()) = Tokenizer::new_with_emitter(page, &mut found).finish();
    found.end_line();
    found.text.pop(); // the newline of the last line
    (!found.is_too_deep).then(|| String::from_utf8_lossy(&found.text).into_owned())
}

/// What is read of a page so far.
#[derive(Default)]
struct Page {
    text: Vec<u8>,
    /// Where the line begins that is being read.
    line: usize,
    open: Vec<Element>,
    is_too_deep: bool,
    num_preformatted: usize,
    /// In a script or a style.
    is_hidden: bool,
    /// How many `template` are open: nothing in them is shown.
    num_templates: usize,
    /// The tag that is being read.
    tag: Vec<u8>,
    is_end: bool,
    is_empty: bool,
    /// Name of the element whose text has no tags: only its own end tag ends it.
    raw: Vec<u8>,
}

impl Page {
    fn add(&mut self, mut text: &[u8]) {
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\n' | b'\t' | b'\r' | b'\x0c');
        while let Some(first) = text.first() {
            let mut length = 1;
            if !is_space(first) {
                length = text.iter().position(is_space).unwrap_or(text.len());
                self.text.extend_from_slice(&text[..length]);
            } else if *first == b'\n' && self.num_preformatted > 0 {
                self.end_line();
            } else if self.text.len() > self.line && self.text.last() != Some(&b' ') {
                self.text.push(b' ');
            }
            text = &text[length..];
        }
    }

    fn end_line(&mut self) {
        while self.text.len() > self.line && matches!(self.text.last(), Some(b' ' | b'\t')) {
            self.text.pop();
        }
        if self.text.len() > self.line {
            self.text.push(b'\n');
            self.line = self.text.len();
        }
    }

    fn start(&mut self, element: Element) {
        let ended = match element {
            Element::Item | Element::Definition | Element::Choice | Element::Heading => {
                self.find(|open| open == element, |open| open != Element::Paragraph)
            }
            _ if element.rank() > 0 => {
                let table = self.open.iter().rposition(|&open| open == Element::Table);
                let first = table.map_or(0, |place| place + 1);
                let within = &self.open[first..];
                within.iter().position(|open| (1..=element.rank()).contains(&open.rank())).map(|place| first + place)
            }
            _ => None,
        };
        self.end_from(ended);
        if element.rank() == 0 && element != Element::Choice {
            self.end_from(self.find(|open| open == Element::Paragraph, Element::is_of_table));
        }
        if element != Element::Cell {
            self.end_line();
        }
        if self.open.len() == MAX_DEPTH {
            self.is_too_deep = true;
            return;
        }
        self.num_preformatted += usize::from(element == Element::Preformatted);
        self.open.push(element);
        if self.is_empty {
            self.end_from(Some(self.open.len() - 1));
        }
    }

    fn end(&mut self, element: Element) {
        let place = match element {
            Element::Table => self.find(|open| open == element, |_| false),
            _ if element.rank() > 0 => self.find(|open| open == element, |open| open == Element::Table),
            _ => self.find(|open| open == element, Element::is_of_table),
        };
        if place.is_none() && element == Element::Paragraph {
            self.end_line(); // by the standard it is a paragraph of its own
        }
        self.end_from(place);
    }

    /// The place of the last open element that is meant, unless one stands behind it that it does not end.
    fn find(&self, is_meant: impl Fn(Element) -> bool, is_bound: impl Fn(Element) -> bool) -> Option<usize> {
        let place = self.open.iter().rposition(|&open| is_meant(open) || is_bound(open))?;
        is_meant(self.open[place]).then_some(place)
    }

    /// End the open element at this place, and all that are open in it.
    fn end_from(&mut self, place: Option<usize>) {
        while place.is_some_and(|place| self.open.len() > place) {
            let element = self.open.pop();
            self.num_preformatted -= usize::from(element == Some(Element::Preformatted));
            if element != Some(Element::Cell) {
                self.end_line();
            } else if self.text.len() > self.line {
                self.text.push(b'\t');
            }
        }
    }

    /// The state in which the text of an element is read that has no tags in it.
    fn raw_state(&mut self) -> Option<State> {
        let state = match self.tag.as_slice() {
            b"script" => State::ScriptData,
            b"style" | b"xmp" | b"iframe" | b"noembed" | b"noframes" => State::RawText,
            b"textarea" | b"title" => State::RcData,
            b"plaintext" => State::PlainText,
            _ => return None,
        };
        self.is_hidden = matches!(self.tag.as_slice(), b"script" | b"style");
        self.raw.clone_from(&self.tag);
        Some(state)
    }
}

impl Emitter for &mut Page {
    type Token = Infallible;

    fn emit_string(&mut self, text: &[u8]) {
        if !self.is_hidden && self.num_templates == 0 {
            self.add(text);
        }
    }

    fn emit_current_tag(&mut self) -> Option<State> {
        self.is_hidden = false;
        let is_shown = self.num_templates == 0;
        match (self.tag.as_slice(), self.is_end) {
            (b"template", true) => self.num_templates = self.num_templates.saturating_sub(1),
            (b"template", false) => self.num_templates += usize::from(!self.is_empty),
            (b"br", _) | (b"hr", false) if is_shown => self.end_line(),
            (name, is_end) if is_shown => match Element::of(name) {
                Some(element) if is_end => self.end(element),
                Some(element) => self.start(element),
                None => (),
            },
            _ => (),
        }
        // As in XHTML, an element that says that it is empty has no text, be it a script.
        if self.is_end || self.is_empty { None } else { self.raw_state() }
    }

    fn current_is_appropriate_end_tag_token(&mut self) -> bool {
        self.is_end && !self.raw.is_empty() && self.tag == self.raw
    }

    fn init_start_tag(&mut self) {
        self.tag.clear();
        (self.is_end, self.is_empty) = (false, false);
    }

    fn init_end_tag(&mut self) {
        self.tag.clear();
        (self.is_end, self.is_empty) = (true, false);
    }

    fn push_tag_name(&mut self, name: &[u8]) {
        self.tag.extend_from_slice(name);
    }

    fn set_self_closing(&mut self) {
        self.is_empty = true;
    }

    fn pop_token(&mut self) -> Option<Infallible> {
        None
    }

    fn should_emit_errors(&mut self) -> bool {
        false
    }

    fn set_last_start_tag(&mut self, _: Option<&[u8]>) {}
    fn emit_eof(&mut self) {}
    fn emit_error(&mut self, _: Error) {}
    fn init_comment(&mut self) {}
    fn push_comment(&mut self, _: &[u8]) {}
    fn emit_current_comment(&mut self) {}
    fn init_doctype(&mut self) {}
    fn push_doctype_name(&mut self, _: &[u8]) {}
    fn set_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn set_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_public_identifier(&mut self, _: &[u8]) {}
    fn push_doctype_system_identifier(&mut self, _: &[u8]) {}
    fn set_force_quirks(&mut self) {}
    fn emit_current_doctype(&mut self) {}
    fn init_attribute(&mut self) {}
    fn push_attribute_name(&mut self, _: &[u8]) {}
    fn push_attribute_value(&mut self, _: &[u8]) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_ends_the_blocks_and_cells_that_it_leaves_open() {
        for (page, text) in [
            ("", ""),
            ("<!-- a -->", ""),
            ("a<p>b <b> c</b>d<p>e", "a\nb cd\ne"),
            ("<ul><li>a<li>b</ul>c", "a\nb\nc"),
            ("<table><tr><td>a<td>b<tr><th>c</table>d", "a\tb\nc\nd"),
            ("<table><tr><td><table><tr><td>a<td>b</table><td>c</table>", "a\tb\nc"),
            ("<tr><td><p>a</td><td>b</td></tr>", "a\nb"),
            ("<td><p>a<ul><li>b</ul>c</td>d", "a\nb\nc\td"),
            ("<div><td>a</div>b</td>c", "ab\tc"),
            ("a<pre>b\nc</pre>d\ne</p>f<br>g</br>h", "a\nb\nc\nd e\nf\ng\nh"),
            ("<pre><td>a\nb</pre>", "a\nb"),
            ("a<script>'<p>'</script>b<style/>c<template><p>d<template></template>e</template>f", "abcf"),
            ("<title>a &amp; <b></title>&lt;&eacute;&#x80;&nbsp;|", "a & <b>\n<é€\u{a0}|"),
            ("<textarea><p>a</textarea>b<xmp><p></xmp></xmp>", "<p>ab<p>"),
            ("a<center>b</center>c<details>d<summary>e</summary>f</details>g", "a\nb\nc\nd\ne\nf\ng"),
            ("<P CLASS='>'>a</P\n>b<p x", "a\nb"),
        ] {
            assert_eq!(html_text(page.as_bytes()).as_deref(), Some(text), "{page}");
        }
    }

    #[test]
    fn pages_of_too_many_open_elements_have_no_text() {
        for (tags, is_read) in
            [("<div>", false), ("<li>", true), ("<option>", true), ("<p>", true), ("<b>", true), ("<td>", true)]
        {
            assert_eq!(html_text(tags.repeat(5000).as_bytes()).is_some(), is_read, "{tags}");
        }
    }
}
