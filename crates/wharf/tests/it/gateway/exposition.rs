//! The text format of Prometheus, read by its book: whatever is not in it is an error.

use std::collections::{BTreeMap, BTreeSet};

/// A scrape, read to its end.
#[derive(Debug, Default)]
pub(super) struct Scrape {
    /// Every sample by its name and its labels.
    samples: BTreeMap<(String, Labels), f64>,
    kinds: BTreeMap<String, String>,
}

pub(super) type Labels = BTreeMap<String, String>;

impl Scrape {
    /// Reads a page.
    pub(super) fn read(page: &str) -> Result<Self, String> {
        let mut scrape = Self::default();
        let mut closed = BTreeSet::new();
        let mut family = String::new();
        if !page.ends_with('\n') {
            return Err("the last line has no end".into());
        }
        for line in page.lines() {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                let (name, kind) = rest.split_once(' ').ok_or(format!("a type of nothing: {line}"))?;
                if !["counter", "gauge", "histogram"].contains(&kind) {
                    return Err(format!("no kind: {line}"));
                }
                if closed.contains(name) || scrape.kinds.insert(name.into(), kind.into()).is_some() {
                    return Err(format!("twice: {line}"));
                }
                closed.insert(std::mem::replace(&mut family, name.to_owned()));
            } else if line.starts_with("# HELP ") {
            } else {
                scrape.sample(line, &family)?;
            }
        }
        scrape.check_histograms()?;
        Ok(scrape)
    }

    fn sample(&mut self, line: &str, family: &str) -> Result<(), String> {
        let end = line.find(['{', ' ']).ok_or(format!("no value: {line}"))?;
        let (name, mut rest) = line.split_at(end);
        let base = name.strip_prefix(family).ok_or(format!("out of place, in {family}: {line}"))?;
        let fits = match self.kinds[family].as_str() {
            "histogram" => ["_bucket", "_sum", "_count"].contains(&base),
            "counter" => base.is_empty() && name.ends_with("_total"),
            _ => base.is_empty(),
        };
        if !fits || !is_name(name) {
            return Err(format!("no name of a {}: {line}", self.kinds[family]));
        }
        let mut labels = Labels::new();
        if let Some(inside) = rest.strip_prefix('{') {
            rest = read_labels(inside, &mut labels).map_err(|why| format!("{why}: {line}"))?;
        }
        let value = rest.strip_prefix(' ').ok_or(format!("no blank before the value: {line}"))?;
        let value: f64 = value.parse().map_err(|_| format!("no number: {line}"))?;
        match self.samples.insert((name.to_owned(), labels), value) {
            None => Ok(()),
            Some(_) => Err(format!("the same sample twice: {line}")),
        }
    }

    /// Buckets grow, end in `+Inf`, and that is the count.
    fn check_histograms(&self) -> Result<(), String> {
        for ((name, labels), count) in &self.samples {
            let Some(name) = name.strip_suffix("_count") else { continue };
            let mut buckets: Vec<(f64, f64)> = Vec::new();
            for ((bucket, of), value) in &self.samples {
                let mut of = of.clone();
                if let (Some(le), true) = (of.remove("le"), *bucket == format!("{name}_bucket"))
                    && of == *labels
                {
                    buckets
                        .push((le.replace("+Inf", "inf").parse().map_err(|_| format!("le {le}"))?, *value));
                }
            }
            buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
            let grow = buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1);
            if !grow || buckets.last() != Some(&(f64::INFINITY, *count)) {
                return Err(format!("a histogram that is none: {name} {labels:?} {buckets:?} {count}"));
            }
        }
        Ok(())
    }

    /// The sample of this name with exactly these labels.
    pub(super) fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        self.samples.get(&(name.to_owned(), labels)).copied()
    }

    /// All samples of a name whose labels have these among them.
    pub(super) fn all(&self, name: &str, with: &[(&str, &str)]) -> Vec<(&Labels, f64)> {
        let fits = |labels: &Labels| with.iter().all(|(k, v)| labels.get(*k).is_some_and(|known| known == v));
        let of_name = self.samples.iter().filter(|((known, labels), _)| known == name && fits(labels));
        of_name.map(|((_, labels), value)| (labels, *value)).collect()
    }

    /// Their sum.
    pub(super) fn sum(&self, name: &str, with: &[(&str, &str)]) -> f64 {
        self.all(name, with).iter().map(|(_, value)| value).sum()
    }
}

fn is_name(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Reads `a="b",c="d"}`; gives what comes after it.
fn read_labels<'a>(mut text: &'a str, labels: &mut Labels) -> Result<&'a str, String> {
    loop {
        let (name, rest) = text.split_once("=\"").ok_or("a label without a value")?;
        let mut value = String::new();
        let mut chars = rest.char_indices();
        let end = loop {
            match chars.next().ok_or("a value without an end")? {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().ok_or("an escape of nothing")?.1 {
                    '\\' => '\\',
                    '"' => '"',
                    'n' => '\n',
                    other => return Err(format!("an escape that there is not: {other}")),
                }),
                (_, c) => value.push(c),
            }
        };
        if !is_name(name) || labels.insert(name.to_owned(), value).is_some() {
            return Err(format!("no label, or one twice: {name}"));
        }
        match rest[end + 1..].strip_prefix(',') {
            Some(next) => text = next,
            None => return rest[end + 1..].strip_prefix('}').ok_or("no end of the labels".into()),
        }
    }
}

#[test]
fn l96_the_reader_of_scrapes_is_strict() {
    let good = "# HELP a_total x\n# TYPE a_total counter\na_total{b=\"c\\\\\\\"\\n\"} 1\n";
    let scrape = Scrape::read(good).unwrap();
    assert_eq!(scrape.value("a_total", &[("b", "c\\\"\n")]), Some(1.0));
    for bad in [
        "# TYPE a_total counter\na_total 1",
        "# TYPE a_total counter\na_total 1\na_total 1\n",
        "# TYPE a_total counter\na_total{b=\"c\"d\"} 1\n",
        "# TYPE a_total counter\na_total{b=\"c\n\"} 1\n",
        "# TYPE a_total counter\na_total x\n",
        "# TYPE a_total counter\nb_total 1\n",
        "# TYPE a_total counter\na_total 1\n# TYPE b gauge\nb 1\na_total{c=\"d\"} 1\n",
        "# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 1\n",
        "# TYPE h histogram\nh_bucket{le=\"+Inf\"} 1\nh_sum 1\nh_count 2\n",
    ] {
        assert!(Scrape::read(bad).is_err(), "{bad}");
    }
}
