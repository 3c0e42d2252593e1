//! Rows as text: aligned for the eye, tab-separated for a pipe.

use anstyle::Style;
use comfy_table::{Cell, ContentArrangement, Row, Table, presets};
use wharf::text::Escaped;

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
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let text = table.trim_fmt();
    let bold = Style::new().bold();
    match text.split_once('\n') {
        Some((head, body)) => format!("{bold}{head}{bold:#}\n{body}\n"),
        None => format!("{bold}{text}{bold:#}\n"),
    }
}
