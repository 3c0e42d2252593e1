//! Rows as text: aligned for the eye, tab-separated for a pipe.

use anstyle::Style;
use comfy_table::{Cell, ColumnConstraint, ContentArrangement, Row, Table, Width, presets};
use wharf::text::Escaped;

/// What gives way where there is little room. Numbers are never cut: a column stands there whole, or not at all.
pub(crate) struct Giving {
    /// The last column, if it has words: it is cut before anything else gives way.
    pub(crate) words: &'static str,
    /// Columns that are left out, one after the other.
    pub(crate) order: &'static [&'static str],
    /// How many of them before the first column, which has names, is cut.
    pub(crate) before_names: usize,
}

/// What is left of words and of names before something else gives way.
const WORDS: usize = 20;
const NAMES: usize = 12;
/// What stands between two columns.
const GAP: usize = 2;

/// One line a row, no head, nothing cut. What could be taken for a tab or a line break is escaped.
pub(super) fn tab_separated(rows: &[Vec<String>]) -> String {
    let line = |row: &Vec<String>| {
        let cells: Vec<String> = row.iter().map(|cell| Escaped(cell).to_string()).collect();
        format!("{}\n", cells.join("\t"))
    };
    rows.iter().map(line).collect()
}

/// Columns under a head; each row keeps to one line of the terminal.
pub(crate) fn aligned(head: &[&str], rows: &[Vec<String>], width: u16) -> String {
    drawn(head, rows, width, &[])
}

/// The same, where the head keeps to one line too.
pub(crate) fn fitted(head: &[&str], rows: &[Vec<String>], width: u16, giving: &Giving) -> String {
    let wanted = |column: usize| {
        let cells = rows.iter().map(|row| Escaped(&row[column]).to_string().chars().count());
        cells.fold(head[column].len(), usize::max)
    };
    let all: Vec<(usize, usize)> = (0..head.len()).map(|column| (column, wanted(column))).collect();
    let columns = giving.fit(head, &all, width.into());
    let of = |row: &[String]| columns.iter().map(|(column, _)| row[*column].clone()).collect();
    let rows: Vec<Vec<String>> = rows.iter().map(|row| of(row)).collect();
    let head: Vec<&str> = columns.iter().map(|(column, _)| head[*column]).collect();
    let widths: Vec<usize> = columns.iter().map(|(_, width)| *width).collect();
    drawn(&head, &rows, width, &widths)
}

// === impl Giving ===

impl Giving {
    /// The columns that stay, and how wide each is.
    fn fit(&self, head: &[&str], all: &[(usize, usize)], room: usize) -> Vec<(usize, usize)> {
        let is_words = |column: usize| head[column] == self.words;
        let sum = |columns: &[(usize, usize)]| columns.iter().map(|(_, width)| width + GAP).sum::<usize>();
        // With the first so many left out, words cut, and names too or not.
        let left = |gone: usize, cut_names: bool| -> Vec<(usize, usize)> {
            let stay = all.iter().filter(|(column, _)| !self.order[..gone].contains(&head[*column]));
            let cut = |(column, wanted): &(usize, usize)| match *column {
                0 if cut_names => (0, (*wanted).min(NAMES)),
                column if is_words(column) => (column, (*wanted).min(WORDS)),
                column => (column, *wanted),
            };
            stay.map(cut).collect()
        };
        let whole = (0..=self.before_names).map(|gone| left(gone, false));
        let tries = whole.chain((self.before_names..=self.order.len()).map(|gone| left(gone, true)));
        let mut columns = left(self.order.len(), true);
        for fits in tries {
            if sum(&fits) <= room {
                columns = fits;
                break;
            }
        }
        // What is to spare goes to names, and then to words, some of which may be wider than they are long. What lacks goes
        // from words, as far as their head.
        let (mut spare, lack) = (room.saturating_sub(sum(&columns)), sum(&columns).saturating_sub(room));
        for (column, width) in &mut columns {
            if is_words(*column) {
                *width = (*width + spare).saturating_sub(lack).max(self.words.len());
            } else if *column == 0 {
                let more = spare.min(all[0].1 - *width);
                (*width, spare) = (*width + more, spare - more);
            }
        }
        columns
    }
}

/// Columns that are as wide as they are said to be, or as they need to be.
fn drawn(head: &[&str], rows: &[Vec<String>], width: u16, widths: &[usize]) -> String {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Dynamic)
        .set_width(width)
        .set_truncation_indicator("…");
    for row in rows {
        let cells = row.iter().map(|cell| Cell::new(Escaped(cell)));
        let mut row = Row::from(cells.collect::<Vec<_>>());
        row.max_height(1);
        table.add_row(row);
    }
    table.set_header(head.iter().map(|title| Cell::new(title.to_uppercase())));
    for (number, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if let Some(width) = widths.get(number) {
            let width = u16::try_from(width + GAP).unwrap_or(u16::MAX);
            column.set_constraint(ColumnConstraint::Absolute(Width::Fixed(width)));
        }
    }
    let text = table.trim_fmt();
    let bold = Style::new().bold();
    match text.split_once('\n') {
        Some((head, body)) => format!("{bold}{head}{bold:#}\n{body}\n"),
        None => format!("{bold}{text}{bold:#}\n"),
    }
}

#[cfg(test)]
mod tests;
